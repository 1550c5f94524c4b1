"""What an error looks like: the user's frames with their lines, none of ours."""
import sys
import traceback

cells = part("cells")


def describe(error):
    """Name, value and traceback of an exception."""
    name = type(error).__name__
    try:
        value = str(error)
    except Exception:
        value = "<exception str() failed>"
    try:
        text = "".join(lines(error))
    except BaseException:
        text = "%s: %s\n" % (name, value)
    return {"name": name, "value": value[: 1 << 20], "traceback": text.rstrip("\n")}


def lines(error):
    """The traceback as the interpreter prints it."""
    told = traceback.TracebackException(type(error), error, error.__traceback__)
    seen = set()
    tidy(told, seen)
    if not told.stack:
        # Without frames there is no headline either.
        bare = traceback.TracebackException(type(error), error, None)
        for chained in (bare.__cause__, bare.__context__):
            tidy(chained, seen)
        told = bare
    return told.format()


def tidy(told, seen):
    """Takes our frames, and all before the cell's first, out of a traceback and its causes."""
    if told is None or id(told) in seen:
        return
    seen.add(id(told))
    stack = told.stack
    first = 0
    for at, frame in enumerate(stack):
        if frame.filename in cells.sources or frame.filename.startswith("<ipython-input"):
            first = at
            break
    stack[:] = [frame for frame in stack[first:] if not frame.filename.startswith("<soma")]
    tidy(told.__cause__, seen)
    tidy(told.__context__, seen)
    for inner in getattr(told, "exceptions", None) or ():
        tidy(inner, seen)


def without_ours(trace):
    """The same frames without ours, for those who print them by themselves."""
    kept = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith("<soma"):
            kept.append(trace)
        trace = trace.tb_next
    for at, one in enumerate(kept):
        one.tb_next = kept[at + 1] if at + 1 < len(kept) else None
    return kept[0] if kept else None


def elsewhere(error):
    """An error outside a cell goes to standard error and ends nothing."""
    try:
        sys.stderr.write("".join(lines(error)))
    except Exception:
        pass


def in_thread(arguments):
    """An error that ended a thread."""
    error = arguments.exc_value
    if error is None or isinstance(error, SystemExit):
        return
    name = getattr(arguments.thread, "name", "")
    sys.stderr.write("Exception in thread %s:\n" % name + "".join(lines(error)))


def ignored(what):
    """An error that nobody could catch, as in a finaliser."""
    message = what.err_msg or "Exception ignored in"
    try:
        about = repr(what.object)
    except Exception:
        about = "<object repr() failed>"
    text = "".join(lines(what.exc_value)) if what.exc_value is not None else ""
    sys.stderr.write("%s: %s\n%s" % (message, about, text))
