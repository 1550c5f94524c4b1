"""A kernel: one process with one user's state, from its fork to the end of descriptor 3."""
import fcntl
import gc
import os
import sys
import _signal
import _thread

wire = part("wire")
streams = part("streams")
asking = part("asking")

ABOVE = 60
DUPLICATE = 1030
PIPE_SIZE = 1031
HEAVY = (
    "numpy", "pandas", "matplotlib", "matplotlib.pyplot", "scipy", "scipy.stats", "sklearn",
    "plotly", "plotly.graph_objects", "plotly.express", "PIL.Image", "seaborn", "IPython",
    "polars", "pyarrow", "torch", "tensorflow", "sympy", "statsmodels.api", "networkx",
    "bokeh", "altair", "requests", "bs4", "cv2",
)  # fmt: skip

running = False
told = set()
flavour = None
pid = 0
sandbox = b""


def main(received, request, ready, kind):
    """Becomes a kernel and serves until there is nobody to serve."""
    global flavour, pid, sandbox
    settle(received)
    pid = os.getpid()
    trouble = move(request)
    sandbox = machine()
    seed()
    streams.framed = True
    flavour = part("plain" if kind == "plain" else "shell")
    told.update(name for name in HEAVY if name in sys.modules)
    sys.path.insert(0, "")
    site = sys.modules.get("site")
    if getattr(site, "ENABLE_USER_SITE", False) and site.USER_SITE not in sys.path:
        sys.path.append(site.USER_SITE)
    asking.install()
    flavour.start()
    sys.excepthook = lambda kind, error, trace: part("errors").elsewhere(error)
    sys.unraisablehook = lambda what: part("errors").ignored(what)
    for name in ("_exit", "system", "posix_spawn", "posix_spawnp", "execv", "execve", "abort"):
        setattr(os, name, flushed(getattr(os, name)))
    os.register_at_fork(
        before=streams.before_fork,
        after_in_parent=streams.after_fork_here,
        after_in_child=leave,
    )
    gc.enable()
    wire.send(b"ready", ready)
    if trouble:
        wire.send(b"stderr", trouble.encode("utf-8", "replace"))
    serve()
    running_out()


def settle(received):
    """A session of its own, and the descriptors where they belong."""
    os.setsid()
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    _signal.signal(_signal.SIGINT, interrupt)
    high = [fcntl.fcntl(number, DUPLICATE, ABOVE) for number in received[:4]]
    for number in received:
        os.close(number)
    for place, number in enumerate(high, 1):
        os.dup2(number, place, inheritable=place < 3)
    os.close(high[2])
    os.close(high[3])
    wire.pipes = (high[0], high[1])
    try:
        fcntl.fcntl(4, PIPE_SIZE, 1 << 18)
    except OSError:
        pass
    try:
        import faulthandler

        faulthandler.enable(2)
    except (ImportError, OSError, RuntimeError):
        pass


def move(request):
    """Changes environment and folder; says what did not work."""
    for name, value in (request.get("env") or {}).items():
        try:
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        except (TypeError, ValueError):
            continue
    folder = request.get("cwd")
    if folder:
        try:
            os.chdir(folder)
        except OSError as error:
            return "cannot change to %s: %s\n" % (folder, error.strerror)
    return None


def flushed(call):
    """The same function of `os`, after what was printed before it is sent."""

    def flush_first(*arguments, **options):
        streams.flush()
        return call(*arguments, **options)

    flush_first.__name__ = call.__name__
    flush_first.__doc__ = call.__doc__
    return flush_first


def seed():
    """Kernels of one nursery must not draw the same numbers; `random` sees to itself."""
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        try:
            numpy.seed()
        except Exception:
            pass


def machine():
    """What tells this sandbox from its copies."""
    try:
        with open("/etc/machine-id", "rb") as file:
            return file.read(64)
    except OSError:
        return b""


def renew():
    """In a copy of the sandbox, what was random is so no more."""
    global sandbox
    if sandbox != machine():
        sandbox = machine()
        random = sys.modules.get("random")
        if random is not None:
            random.seed()
        ssl = sys.modules.get("_ssl")
        if ssl is not None:
            # OpenSSL has numbers of its own in memory.
            ssl.RAND_add(os.urandom(64), 64.0)
        seed()


def leave():
    """In a process that a cell forked: nothing of the kernel is its business."""
    streams.after_fork_there()
    for number in (3, 4) + tuple(wire.pipes):
        try:
            os.close(number)
        except OSError:
            pass
    if _signal.getsignal(_signal.SIGINT) is interrupt:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def serve():
    """Frames, one after the other."""
    while True:
        loop = sys.modules.get("asyncio") and part("loop")
        if loop:
            loop.idle()
        frame = wire.receive()
        if frame is None:
            return
        words, body = frame
        if words[0] == b"execute":
            execute(int(words[1]), words[2], body, int(words[3]))
        elif words[0] == b"complete":
            complete(int(words[1]), body.decode("utf-8", "replace"))


def execute(number, flags, body, size):
    """Runs a cell with its own variables, and says how it ended."""
    global running
    code = body[:size].decode("utf-8", "replace")
    before = lend(body[size:]) if len(body) > size else None
    renew()
    asking.allowed = b"i" in flags
    silent = b"s" in flags
    _signal.signal(_signal.SIGINT, interrupt)
    # Which cell it is, so that an interrupt of one that is over does not reach the next.
    running = number or -1
    try:
        status = flavour.run(code, number, silent)
        if "matplotlib.pyplot" in sys.modules and not silent:
            status = part("figures").finish(status)
    except KeyboardInterrupt:
        status = "interrupted"
    except BaseException as error:
        running = False
        status = report(error)
    finally:
        running = False
    if os.getpid() != pid:
        streams.flush()
        os._exit(0 if status == "ok" else 1)
    asking.allowed = False
    if before is not None:
        give_back(before)
    streams.flush()
    new = [name for name in HEAVY if name in sys.modules and name not in told]
    told.update(new)
    wire.send(b"done " + status.encode(), wire.dump({"modules": new}) if new else b"")


def tell(word, value):
    """A frame with JSON, after all output that came before it."""
    streams.flush()
    data = wire.dump(value)
    if len(data) > wire.LONGEST:
        data = wire.dump(shorten(value))
    wire.send(word, data)


def shorten(value):
    """What is left of something too large for a frame: its parts that are not too large."""
    data = value.get("data")
    if data is None:
        return {key: str(item)[: 1 << 20] for key, item in value.items()}
    kept = {kind: item for kind, item in data.items() if len(wire.dump(item)) < wire.LONGEST // 4}
    kept.setdefault("text/plain", "(too large to be shown)")
    return dict(value, data=kept)


def complete(cursor, code):
    """What could stand at the cursor."""
    try:
        matches, start, end = flavour.complete(code, cursor)
    except Exception:
        matches, start, end = [], cursor, cursor
    tell(b"completions", {"matches": matches, "start": start, "end": end})


def lend(data):
    """Sets the variables of this cell; returns what they were."""
    before = {}
    for item in data.split(b"\0"):
        name, sign, value = item.partition(b"=")
        if sign and name:
            before.setdefault(name, os.environb.get(name))
            os.environb[name] = value
    return before


def give_back(before):
    """Sets them back."""
    for name, value in before.items():
        if value is None:
            os.environb.pop(name, None)
        else:
            os.environb[name] = value


def interrupt(_number, frame):
    """Stops the cell, but never in our own code, where half a frame could be written."""
    if not running:
        return
    ours = frame is not None and frame.f_code.co_filename.startswith("<soma")
    if ours and not asking.waiting:
        try:
            _thread.start_new_thread(again, (_thread.get_ident(), running))
        except RuntimeError:
            pass
        return
    raise KeyboardInterrupt


def again(thread, cell):
    """Interrupts the same cell once more, a moment later."""
    import time

    time.sleep(0.002)
    if running == cell:
        _signal.pthread_kill(thread, _signal.SIGINT)


def running_out():
    """The end in good order: what asked to be called at the end is called."""
    try:
        import atexit

        atexit._run_exitfuncs()
    except BaseException:
        pass
    os._exit(0)


def report(error, word=b"error"):
    """The cell failed with this."""
    value = part("errors").describe(error)
    tell(word, value)
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
