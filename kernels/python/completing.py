"""Completion over the names of a namespace, without running anything of the user's but attributes."""
import builtins
import keyword

MOST = 500


def complete(code, cursor, names):
    """Matches, and which characters they replace."""
    start = cursor
    while start > 0 and (code[start - 1].isalnum() or code[start - 1] in "_."):
        start -= 1
    word = code[start:cursor]
    path, dot, stem = word.rpartition(".")
    if dot:
        found = attributes(path, names)
    else:
        found = set(names) | set(dir(builtins)) | set(keyword.kwlist)
    matches = [name for name in found if name.startswith(stem)]
    if not stem.startswith("_"):
        matches = [name for name in matches if not name.startswith("_")]
    return sorted(matches)[:MOST], cursor - len(stem), cursor


def attributes(path, names):
    """The attributes of what a dotted path names."""
    first, *rest = path.split(".")
    if first in names:
        value = names[first]
    elif hasattr(builtins, first):
        value = getattr(builtins, first)
    else:
        return ()
    for name in rest:
        value = getattr(value, name)
    return [name for name in dir(value) if isinstance(name, str)]
