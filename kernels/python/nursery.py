"""The process that kernels are forked from: what it has imported is there at once.

It runs nothing of the user's, has one thread, and waits on its socket and on
the ends of its kernels. Modules that many cells want are imported here when
the guest asks for it.
"""
import gc
import os
import select
import sys
import _signal
import _socket

CLOSE_ON_EXEC = 0x40000000
IDLE = 300

kernels = set()
watched = {}
stale = False
flavour = "plain"


def main():
    """Gets ready, says so, and serves until the socket ends."""
    global flavour
    gc.disable()
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    for number in (4, 5):
        try:
            os.close(number)
        except OSError:
            pass
    os.set_inheritable(3, False)
    socket = _socket.socket(fileno=3)
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)
    _signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    # Programs that a cell starts must not look for a screen either.
    os.environ["MPLBACKEND"] = "agg"
    sys.path[:] = [entry for entry in sys.path if entry]
    part("streams").install()
    part("hooks").install()
    flavour = prepare()
    watch()
    gc.freeze()
    text = about(flavour)
    socket.send(b"ready %d\n" % len(text) + text)
    serve(socket, read, (read, write))


def prepare():
    """Imports IPython where it is there, and says which flavour cells have."""
    try:
        import IPython  # noqa: F401
    except ImportError:
        return "plain"
    except Exception:
        return "plain"
    try:
        return part("shell").prepare()
    except Exception as error:
        os.write(2, ("IPython cannot be used: %r\n" % (error,)).encode())
        return "plain"


def about(flavour):
    """What `ready` says."""
    version = "%d.%d.%d" % sys.version_info[:3]
    text = '{"language":"python","version":"%s","flavour":"%s","order":"frames"}'
    return (text % (version, flavour)).encode()


def serve(socket, wake, pipe):
    """Packets and ends of kernels, until the socket ends."""
    poll = select.poll()
    poll.register(3, select.POLLIN)
    poll.register(wake, select.POLLIN)
    patience = None
    while True:
        events = poll.poll(patience)
        if not events:
            warm()
            patience = None
            continue
        for number, _ in events:
            if number == wake:
                try:
                    os.read(wake, 4096)
                except BlockingIOError:
                    pass
                reap(socket)
            elif not packet(socket, pipe):
                os._exit(0)
        if kernels and patience is None and not warmed:
            patience = IDLE


def packet(socket, pipe):
    """Handles one packet; false at the end."""
    room = _socket.CMSG_SPACE(8 * 4)
    try:
        text, control, _, _ = socket.recvmsg(1 << 20, room, CLOSE_ON_EXEC)
    except ConnectionError:
        return False
    received = []
    for level, kind, data in control:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            for at in range(0, len(data) - len(data) % 4, 4):
                received.append(int.from_bytes(data[at : at + 4], sys.byteorder))
    if not text:
        return False
    line, _, body = text.partition(b"\n")
    words = line.split()
    if words[0] == b"fork":
        fork(socket, words[1], body, received, pipe)
    elif words[0] == b"preload" and not changed(socket):
        preload(body)
    for number in received:
        os.close(number)
    return True


def fork(socket, name, body, received, pipe):
    """A new kernel, or why there is none."""
    if changed(socket):
        return
    why = None
    pid = -1
    if len(received) < 4:
        why = "the four descriptors of the kernel did not arrive"
    else:
        try:
            request = part("wire").parse(body.decode("utf-8", "replace"))
            pid = quiet_fork()
        except Exception as error:
            why = "%s: %s" % (type(error).__name__, error)
    if pid == 0:
        try:
            socket.detach()
            for number in pipe:
                os.close(number)
            part("kernel").main(received, request, about(flavour), flavour)
        except BaseException as error:
            os.write(2, ("the kernel cannot go on: %r\n" % (error,)).encode())
        finally:
            os._exit(70)
    if why is not None:
        text = why.encode("utf-8", "replace")
        socket.send(b"failed %b %d\n" % (name, len(text)) + text)
        return
    kernels.add(pid)
    socket.send(b"forked %b %d 0\n" % (name, pid))


def quiet_fork():
    """Forks without the warning about threads: those of libraries here are made for it."""
    warnings = sys.modules.get("warnings")
    if warnings is None:
        return os.fork()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()


def reap(socket):
    """Tells of every kernel that ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid not in kernels:
            continue
        kernels.discard(pid)
        if os.WIFSIGNALED(status):
            how = b"signal:%d" % os.WTERMSIG(status)
        else:
            how = b"exit:%d" % os.WEXITSTATUS(status)
        socket.send(b"ended %d %b 0\n" % (pid, how))


def preload(body):
    """Imports what the guest found worth sharing."""
    for name in body.decode("utf-8", "replace").split("\n"):
        if name.strip():
            try:
                __import__(name.strip())
            except BaseException:
                continue
    watch()
    gc.collect()
    gc.freeze()


warmed = False


def warm():
    """What a first cell did not wait for, compiled and imported once for all later kernels."""
    global warmed
    warmed = True
    names = ["kernel", "plain", "mime", "errors", "loop", "completing", "asking", "magics"]
    for name in names + ["figures", "charts", "tables", "plots"]:
        part(name)
    for name in ("json", "linecache", "traceback"):
        __import__(name)
    gc.collect()
    gc.freeze()


def watch():
    """Remembers how the folders look that modules come from."""
    site = sys.modules.get("site")
    folders = list(sys.path)
    if getattr(site, "ENABLE_USER_SITE", False):
        folders.append(site.USER_SITE)
    for folder in folders:
        watched[folder] = looks(folder)


def looks(folder):
    """The time of the last change, or nothing where there is no such folder."""
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return None


def changed(socket):
    """Whether modules have come or gone; says so once."""
    global stale
    if not stale:
        stale = any(looks(folder) != time for folder, time in watched.items())
    if stale:
        socket.send(b"stale 0\n")
    return stale
