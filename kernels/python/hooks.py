"""Hears of modules when they are imported, so that nothing is imported for their sake."""
import sys

hooks = {}


def on(name, call):
    """Calls with the module once it is there."""
    module = sys.modules.get(name)
    if module is None:
        hooks[name] = call
    else:
        call(module)


class Finder:
    """Stands before all other finders and looks only at names that were asked for."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in hooks:
            return None
        for finder in sys.meta_path:
            if finder is Finder or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return tell(name, spec)
        return None


def tell(name, spec):
    """Makes the loader tell when it has executed the module."""
    loader = spec.loader
    execute = getattr(loader, "exec_module", None)
    if execute is None or isinstance(loader, type):
        return spec

    def exec_module(module):
        execute(module)
        call = hooks.pop(name, None)
        if call is not None:
            try:
                call(module)
            except Exception as error:
                print("soma: %s: %r" % (name, error), file=sys.stderr)

    try:
        loader.exec_module = exec_module
    except AttributeError:
        pass
    return spec


def install():
    """Waits for the modules that need something of ours."""
    sys.meta_path.insert(0, Finder)
    on("linecache", lambda module: part("cells").fill(module))
    on("threading", patch_threading)
    on("subprocess", patch_subprocess)
    on("getpass", lambda module: part("asking").patch_getpass(module))
    on("matplotlib.pyplot", lambda module: part("figures").patch(module))
    on("plotly.basedatatypes", lambda module: part("plots").patch(module))
    on("PIL.Image", lambda module: part("plots").patch_image(module))


def patch_threading(module):
    """Errors of threads with the lines of cells, which the interpreter's own hook does not know."""
    module.excepthook = lambda arguments: part("errors").in_thread(arguments)


def patch_subprocess(module):
    """What was printed before a program is started comes before what the program prints."""
    start = module.Popen._execute_child

    def _execute_child(self, *arguments, **options):
        part("streams").flush()
        return start(self, *arguments, **options)

    module.Popen._execute_child = _execute_child
