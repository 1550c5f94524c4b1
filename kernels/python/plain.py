"""Cells without IPython: the same results, errors and awaiting by the interpreter alone."""
import builtins
import sys
import _ast

kernel = part("kernel")
cells = part("cells")

TREE = 0x400
AWAIT = 0x2000
COROUTINE = 0x80
# Values that have no other form than text.
SIMPLE = frozenset((int, float, complex, bool, str, bytes, bytearray, range, type))
LOOPED = {"create_task", "ensure_future", "get_running_loop", "current_task"}
LOOPS = {"run", "run_until_complete", "run_forever"}

main = sys.modules["__main__"]
future = 0


def start():
    """What a cell finds: `display`, and values that are shown."""
    builtins.display = display
    sys.displayhook = show
    main.__dict__.setdefault("__doc__", None)


def run(text, number, silent):
    """Runs one cell; what it is worth is shown, what it raised is told."""
    name = "<cell %d>" % number
    try:
        value = evaluate(text, name)
        if value is not None and not silent:
            sys.displayhook(value)
    except BaseException as error:
        if not isinstance(error, (KeyboardInterrupt, SystemExit)):
            sys.last_type, sys.last_value = type(error), error
            sys.last_traceback = error.__traceback__
        return kernel.report(error)
    return "ok"


def evaluate(text, name):
    """Executes all statements and returns the value of the last, if it is an expression."""
    cells.keep(name, text)
    try:
        tree = compile(text, name, "exec", TREE | AWAIT | future, True)
    except SyntaxError:
        changed = part("magics").translate(text)
        if changed is None:
            raise
        tree = compile(changed, name, "exec", TREE | AWAIT | future, True)
    last = None
    if tree.body and type(tree.body[-1]) is _ast.Expr:
        last = tree.body[-1]
        if not quiet(text, last):
            tree.body.pop()
            last = _ast.Expression(body=last.value)
        else:
            last = None
    if tree.body:
        do(compile(tree, name, "exec", AWAIT | future, True), text)
    if last is None:
        return None
    value = do(compile(last, name, "eval", AWAIT | future, True), text)
    if value is not None and hasattr(type(value), "__await__"):
        value = part("loop").run(value)
    return value


def do(code, text):
    """Runs compiled code, on the loop where it awaits or makes tasks."""
    if "__future__" in code.co_names or "__future__" in text:
        remember(code)
    if code.co_flags & COROUTINE:
        return part("loop").run(eval(code, main.__dict__))
    names = code.co_names
    if not LOOPED.isdisjoint(names) and LOOPS.isdisjoint(names):

        async def inside():
            return eval(code, main.__dict__)

        return part("loop").run(inside())
    return eval(code, main.__dict__)


def remember(code):
    """`from __future__ import` holds for later cells as well."""
    global future
    import __future__

    for name in __future__.all_feature_names:
        flag = getattr(__future__, name).compiler_flag
        if code.co_flags & flag and flag != __future__.nested_scopes.compiler_flag:
            future |= flag


def quiet(text, last):
    """Whether a semicolon after the last expression says that it is not to be shown."""
    lines = text.encode("utf-8", "replace").split(b"\n")
    if text.find(";") < 0:
        return False
    rest = lines[last.end_lineno - 1][last.end_col_offset :].strip()
    return rest.startswith(b";")


def show(value):
    """The value of a cell, as the interpreter's own hook would treat it."""
    if value is None:
        return
    builtins._ = None
    if type(value) in SIMPLE:
        tell_text(repr(value))
    else:
        shown = part("mime").bundle(value)
        if shown is not None:
            data, metadata = shown
            if len(data) == 1 and not metadata and "text/plain" in data:
                tell_text(data["text/plain"])
            else:
                kernel.tell(b"result", {"data": data, "metadata": metadata})
    builtins._ = value


def tell_text(text):
    """The value of a cell that has no other form."""
    part("streams").flush()
    part("wire").send(b"text", part("wire").cut(text))


def display(*values, raw=False, display_id=None, update=False, **_others):
    """Shows values as they are, each in all its forms."""
    for value in values:
        if raw:
            data, metadata = value, {}
        else:
            shown = part("mime").bundle(value)
            if shown is None:
                continue
            data, metadata = shown
        publish(data, metadata, {"display_id": display_id} if display_id else None, update)


def bundle(value):
    """All forms of a value."""
    return part("mime").bundle(value)


def publish(data, metadata=None, transient=None, update=False):
    """Sends something that is shown."""
    value = {"data": part("mime").clean(data), "metadata": metadata or {}}
    if transient:
        value["transient"] = transient
    if update:
        value["update"] = True
    kernel.tell(b"display", value)


def complete(code, cursor):
    """Completions over the cell's names."""
    return part("completing").complete(code, cursor, main.__dict__)
