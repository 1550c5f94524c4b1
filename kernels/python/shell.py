"""Cells with IPython: one shell without history, colours, files or a terminal."""
import os
import sys
import warnings

from IPython.core import release
from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.formatters import DisplayFormatter
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.profiledir import ProfileDir
from traitlets.config import Config

mime = part("mime")
LOOPED = ("create_task(", "ensure_future(", "get_running_loop(")
LOOPS = ("asyncio.run(", "run_until_complete(", "run_forever(")

shell = None
# Whether this cell's error was told.
failed = False
interrupted = False
# Errors of methods that make forms, while forms are made.
forming = None
# An awaitable that was the value of the cell.
promised = None


def tell(word, value):
    part("kernel").tell(word, value)


class Formatter(DisplayFormatter):
    """All forms that IPython finds, and those that we make for some libraries."""

    def format(self, obj, include=None, exclude=None):
        own = None if type(obj) in mime.SIMPLE else mime.special(obj)
        if own is not None and "application/vnd.plotly.v1+json" in own:
            return mime.clean(dict(part("plots").text(obj), **own)), {}
        data, metadata = self.made(obj, include, exclude)
        if type(obj) in (dict, list) and "text/plain" in data and not include:
            mime.add_json(obj, data)
        if own and data:
            data.update(own)
        return mime.clean(data), metadata


    def made(self, obj, include, exclude):
        """What IPython makes; a form that fails is told, and fails the cell if it is the text."""
        global forming
        before, forming = forming, []
        try:
            data, metadata = super().format(obj, include=include, exclude=exclude)
        finally:
            errors, forming = forming, before
        for error, text in errors:
            if "text/plain" in data or include:
                sys.stderr.write(text + "\n")
            else:
                report(error, text)
        return data, metadata


class Hook(DisplayHook):
    """The value of a cell."""

    def __call__(self, result=None):
        global promised
        if result is not None and hasattr(type(result), "__await__") and promised is None:
            promised = result
            return
        super().__call__(result)

    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        if len(format_dict) == 1 and not md_dict and "text/plain" in format_dict:
            part("plain").tell_text(format_dict["text/plain"])
        else:
            tell(b"result", {"data": format_dict, "metadata": md_dict or {}})

    def log_output(self, format_dict):
        pass

    def finish_displayhook(self):
        pass


class Publisher(DisplayPublisher):
    """What is shown."""

    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **_):
        part("plain").publish(data, metadata, transient, update)

    def clear_output(self, wait=False):
        part("streams").flush()
        part("wire").send(b"clear")


class Compiler(CachingCompiler):
    """Names cells by counting them, not by hashes, which would have to be imported."""

    counted = 0

    def get_code_name(self, raw_code, transformed_code, number):
        Compiler.counted += 1
        return "<ipython-input-%d-%d>" % (number, Compiler.counted)


class Shell(InteractiveShell):
    """The shell; what would write into the user's home or ask a terminal is left out."""

    compiler_class = Compiler

    def init_profile_dir(self, profile_dir):
        self.profile_dir = ProfileDir()

    def init_virtualenv(self):
        pass

    def init_display_formatter(self):
        self.display_formatter = Formatter(parent=self)
        self.configurables.append(self.display_formatter)

    def init_instance_attrs(self):
        # The database of bookmarks and the like would be a folder.
        place = InteractiveShell.init_instance_attrs.__globals__
        kept = place.get("PickleShareDB")
        place["PickleShareDB"] = lambda *_: {}
        try:
            super().init_instance_attrs()
        finally:
            if kept is not None:
                place["PickleShareDB"] = kept
        self.db = {}

    def enable_gui(self, gui=None):
        pass

    def enable_matplotlib(self, gui=None):
        return None, "inline"

    def ask_exit(self):
        raise SystemExit

    def system(self, cmd):
        """Runs a command whose output goes where a child's goes, as it happens."""
        import subprocess

        part("streams").flush()
        command = self.var_expand(cmd, depth=1)
        child = subprocess.Popen(command, shell=True)
        self.user_ns["_exit_code"] = part("magics").wait(child)

    system_piped = system_raw = system

    def should_run_async(self, raw_cell, *, transformed_cell=None, **others):
        # Who makes tasks needs a loop that runs, also without awaiting.
        made = super().should_run_async(raw_cell, transformed_cell=transformed_cell, **others)
        if not made and any(word in raw_cell for word in LOOPED):
            return not any(word in raw_cell for word in LOOPS)
        return made

    def showtraceback(self, exc_tuple=None, *arguments, **options):
        kind, value, trace = self._get_exc_info(exc_tuple)
        trace = part("errors").without_ours(trace)
        exc_tuple = (kind, value.with_traceback(trace), trace)
        seen = value
        while seen is not None:
            if hasattr(seen, "exceptions") and hasattr(seen, "derive"):
                # IPython prints groups by itself, past the place where errors are told.
                report(value, None)
                return
            seen = seen.__context__
        super().showtraceback(exc_tuple, *arguments, **options)

    def _showtraceback(self, etype, evalue, stb):
        report(evalue, self.InteractiveTB.stb2text(stb))

    def show_usage_error(self, exc):
        report(exc, "UsageError: %s" % exc)

    def _format_exception_for_storage(self, *_arguments, **_options):
        # There is no history that would keep it.
        return {}


def report(error, text):
    """The cell failed with this."""
    global failed, interrupted
    if forming is not None and text is not None and not isinstance(error, KeyboardInterrupt):
        forming.append((error, text))
        return
    told = part("errors").describe(error) if text is None else None
    if told is None:
        try:
            value = str(error)
        except Exception:
            value = "<exception str() failed>"
        told = {"name": type(error).__name__, "value": value, "traceback": text.rstrip("\n")}
    if isinstance(error, KeyboardInterrupt):
        interrupted = True
    elif part("loop").interrupted and told["name"] == "CancelledError":
        interrupted = True
        lines = told["traceback"].split("\n")
        lines[-1] = "KeyboardInterrupt: "
        lines = [line for line in lines if not line.startswith("CancelledError ")]
        told = {"name": "KeyboardInterrupt", "value": "", "traceback": "\n".join(lines)}
    failed = True
    tell(b"error", told)


def prepare():
    """Makes the shell, in the nursery; says which flavour this is."""
    global shell
    settings = Config()
    settings.HistoryManager.enabled = False
    settings.HistoryManager.hist_file = ":memory:"
    settings.InteractiveShell.colors = "NoColor" if release._version_major < 9 else "nocolor"
    settings.InteractiveShell.display_page = True
    settings.InteractiveShell.autoindent = False
    settings.IPCompleter.use_jedi = False
    Shell.displayhook_class.default_value = Hook
    Shell.display_pub_class.default_value = Publisher
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shell = Shell.instance(
            config=settings,
            ipython_dir="/",
            user_module=sys.modules["__main__"],
            user_ns=sys.modules["__main__"].__dict__,
        )
    shell.displayhook_class, shell.display_pub_class = Hook, Publisher
    shell.autoawait = True
    shell.loop_runner = lambda coroutine: part("loop").run(coroutine, True)
    warnings.filterwarnings("ignore", "To exit: use")
    return "ipython %d.%d" % (release._version_major, release._version_minor)


def start():
    """What depends on the folder of the kernel."""
    shell.starting_dir = os.getcwd()
    shell.user_ns["_dh"][:] = [os.getcwd()]
    shell.raw_input_original = part("asking").input


def run(text, number, silent):
    """Runs one cell."""
    global failed, interrupted, promised
    failed = interrupted = part("loop").interrupted = False
    promised = None
    shell.execution_count = number
    made = shell.run_cell(text, store_history=not silent, silent=silent)
    if promised is not None and not failed:
        keep()
    promised = None
    error = made.error_before_exec or made.error_in_exec
    if error is not None and not failed:
        report(error, None)
    return "interrupted" if interrupted else "error" if failed else "ok"


def keep():
    """Awaits the awaitable that was the cell's value, and shows what came of it."""
    try:
        value = part("loop").run(promised)
        shell.displayhook(value)
    except BaseException:
        shell.showtraceback()


def bundle(value):
    """All forms of a value."""
    return shell.display_formatter.format(value)


def publish(data, metadata=None):
    """Shows something."""
    shell.display_pub.publish(data, metadata or {})


def complete(code, cursor):
    """IPython's own completions."""
    from IPython.core.completer import provisionalcompleter

    with provisionalcompleter():
        found = list(shell.Completer.completions(code, cursor))
    if not found:
        return [], cursor, cursor
    start, end = found[0].start, found[0].end
    matches = [one.text for one in found if one.start == start and one.end == end]
    return matches[:500], start, end
