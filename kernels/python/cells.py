"""The sources of cells, for tracebacks and `inspect`, without importing linecache for it."""
import sys

sources = {}


def keep(name, text):
    """Remembers the source of a cell."""
    lines = [line + "\n" for line in text.split("\n")]
    entry = (len(text), None, lines, name)
    sources[name] = entry
    linecache = sys.modules.get("linecache")
    if linecache is not None:
        linecache.cache[name] = entry


def fill(linecache):
    """Gives what there is to linecache, which was imported just now."""
    linecache.cache.update(sources)
