"""Frames between the kernel and the guest, and JSON without the cost of importing it.

Whoever sends holds a lock; who is interrupted by itself while it sends (a
signal handler or a finaliser that prints) leaves its frame for the outer one.
"""
import fcntl
import os
import time
import _thread

LONGEST = 60 << 20
UNREAD = 0x541B

lock = _thread.allocate_lock()
get_ident = _thread.get_ident
owner = 0
left = []
received = bytearray()
# The pipes of descriptors 1 and 2, whatever a cell does to these numbers.
pipes = (1, 2)
# True in a process that a cell forked: it has no guest.
alone = False


def send(word, body=b""):
    """Sends one frame, whole."""
    global owner
    me = get_ident()
    if alone:
        return
    if owner == me:
        left.append((word, bytes(body)))
        return
    lock.acquire()
    owner = me
    try:
        put(word, body)
        while left:
            put(*left.pop(0))
    finally:
        owner = 0
        lock.release()


def put(word, body):
    """Writes a frame, and before it what children wrote earlier."""
    line = b"%b %d\n" % (word, len(body))
    out, err = unread(pipes[0]), unread(pipes[1])
    if out or err:
        out, err = wait_for_reader()
    if out or err:
        line = b"after %d %d 0\n" % (out, err) + line
    try:
        if len(body) <= 4096:
            write(line + bytes(body))
            return
        sent = os.writev(4, (line, body)) - len(line)
        if sent < 0:
            write(line[sent:])
            sent = 0
        if sent < len(body):
            write(memoryview(body)[sent:])
    except BrokenPipeError:
        os._exit(0)


def wait_for_reader():
    """Gives the guest a moment to read what children wrote.

    How much is unread tells it only how much, and by the time it looks something
    else may lie there. Only where children write without end is it told so.
    """
    for _ in range(25):
        time.sleep(0.0002)
        out, err = unread(pipes[0]), unread(pipes[1])
        if not out and not err:
            break
    return out, err


def write(data):
    """Writes all of it."""
    sent = os.write(4, data)
    while sent < len(data):
        data = memoryview(data)[sent:]
        sent = os.write(4, data)


def unread(pipe):
    """How many bytes nobody has read yet."""
    try:
        answer = fcntl.ioctl(pipe, UNREAD, b"\0\0\0\0")
    except OSError:
        return 0
    return answer[0] | answer[1] << 8 | answer[2] << 16 | answer[3] << 24


def receive():
    """The next frame as its words and its payload; nothing at the end."""
    while True:
        at = received.find(b"\n")
        if at >= 0:
            break
        if not more():
            return None
    words = bytes(received[:at]).split()
    size = int(words[-1])
    while len(received) < at + 1 + size:
        if not more():
            return None
    body = bytes(received[at + 1 : at + 1 + size])
    del received[: at + 1 + size]
    return words, body


def more():
    """Reads what there is; false at the end."""
    data = os.read(3, 1 << 16)
    received.extend(data)
    return bool(data)


def cut(text):
    """A text as bytes that fit into a frame."""
    data = text.encode("utf-8", "replace")
    if len(data) > LONGEST:
        note = "\n... %d bytes more" % (len(data) - LONGEST)
        data = data[:LONGEST].decode("utf-8", "ignore").encode() + note.encode()
    return data


def dump(value):
    """JSON that every reader takes: no lone surrogates, no numbers that are none."""
    import json

    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError):
        text = json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def plain(value, depth=0):
    """The same with what JSON does not know as text or nothing."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        number = float(value)
        return number if number - number == 0.0 else None
    if depth > 100:
        return None
    if isinstance(value, dict):
        return {str(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item, depth + 1) for item in value]
    for name in ("isoformat", "tolist"):
        if hasattr(value, name):
            try:
                return plain(getattr(value, name)(), depth + 1)
            except Exception:
                break
    return str(value)


def parse(text):
    """Reads JSON; by the accelerator alone where there is one."""
    try:
        from _json import make_scanner
    except ImportError:
        import json

        return json.loads(text)
    return make_scanner(Rules)(text, len(text) - len(text.lstrip()))[0]


class Rules:
    """How the scanner reads: as the standard library does."""

    strict = False
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo = {}
