"""Starts Python's nursery as the guest does, and speaks with it and its kernels in frames."""
import array
import json
import os
import select
import signal
import socket
import subprocess
import time

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "kernels", "python")
START = (
    'import os;b=os.pread(0,1<<24,0);exec(compile(b[:b.index(b"\\n#~ ")+1],"<soma>","exec"),'
    '{"b":b,"__name__":"soma"})'
)
PATIENCE = 60


def program():
    """All files of the folder in the container that boot.py describes."""
    with open(os.path.join(FOLDER, "boot.py"), "rb") as file:
        made = file.read()
    for name in sorted(os.listdir(FOLDER)):
        if name.endswith(".py") and name != "boot.py":
            with open(os.path.join(FOLDER, name), "rb") as file:
                text = file.read()
            made += b"#~ %b %d\n" % (name[:-3].encode(), len(text)) + text
    return made


def place(numbers):
    """Gives a child the descriptors of a nursery."""
    moved = [os.dup(number) for number in numbers]
    for at, number in enumerate(moved):
        os.dup2(number, at)
        os.set_inheritable(at, True)


def there(number, most):
    """At most so many bytes of what is there: two frames may tell of the same bytes."""
    if most and select.select([number], [], [], 0)[0]:
        return os.read(number, most)
    return b""


class Nursery:
    """One nursery."""

    def __init__(self, interpreter, environment=None):
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        blob = os.memfd_create("program")
        os.write(blob, program())
        self.out, out = os.pipe()
        self.err, err = os.pipe()
        numbers = (blob, out, err, there.fileno())
        self.process = subprocess.Popen(
            [interpreter, "-c", START],
            cwd="/",
            env=environment,
            start_new_session=True,
            close_fds=False,
            preexec_fn=lambda: place(numbers),
        )
        for number in (blob, out, err):
            os.close(number)
        there.close()
        self.socket = here
        self.kernels = []
        self.packets = []
        self.number = 0

    def packet(self, *words, patience=PATIENCE):
        """The next packet whose first word is one of these."""
        for at, found in enumerate(self.packets):
            if found[0][0] in words:
                return self.packets.pop(at)
        end = time.monotonic() + patience
        while True:
            self.socket.settimeout(max(0.01, end - time.monotonic()))
            text = self.socket.recv(1 << 20)
            if not text:
                raise EOFError("the nursery ended: %r" % os.read(self.err, 1 << 16))
            line, _, body = text.partition(b"\n")
            found = (line.decode().split(), body)
            if found[0][0] in words:
                return found
            self.packets.append(found)

    def fork(self, cwd="/", env=None):
        """A new kernel; nothing where the nursery is stale."""
        out, err, request, answer = (os.pipe() for _ in range(4))
        self.number += 1
        body = json.dumps({"cwd": cwd, "env": env or {}}).encode()
        numbers = array.array("i", [out[1], err[1], request[0], answer[1]])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)]
        self.socket.settimeout(PATIENCE)
        self.socket.sendmsg([b"fork %d %d\n" % (self.number, len(body)) + body], rights)
        for number in numbers:
            os.close(number)
        kernel = Kernel(self, out[0], err[0], request[1], answer[0])
        self.kernels.append(kernel)
        words, body = self.packet("forked", "failed", "stale")
        if words[0] != "forked":
            kernel.why = (words, body)
            return None
        kernel.pid = int(words[2])
        return kernel

    def preload(self, *names):
        body = "\n".join(names).encode()
        self.socket.send(b"preload %d\n" % len(body) + body)

    def end(self):
        """Ends it and its kernels."""
        self.socket.close()
        for kernel in self.kernels:
            kernel.end()
        for number in (self.out, self.err):
            os.close(number)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Kernel:
    """One kernel."""

    def __init__(self, nursery, out, err, request, answer):
        self.nursery = nursery
        self.out, self.err, self.request, self.answer = out, err, request, answer
        self.pid = None
        self.count = 0
        self.held = bytearray()
        self.open = True
        self.ready = None

    def send(self, line, body=b""):
        data = line.encode() + b" %d\n" % len(body) + body
        while data:
            data = data[os.write(self.request, data) :]

    def more(self, patience=PATIENCE):
        """Reads something of the answers; false at their end."""
        if not select.select([self.answer], [], [], patience)[0]:
            raise TimeoutError("the kernel says nothing: %r" % bytes(self.held[:200]))
        data = os.read(self.answer, 1 << 20)
        self.held.extend(data)
        return bool(data)

    def frame(self, patience=PATIENCE):
        """The next frame: its words and its payload; nothing at the end."""
        while b"\n" not in self.held:
            if not self.more(patience):
                return None
        at = self.held.index(b"\n")
        words = bytes(self.held[:at]).decode().split()
        size = int(words[-1])
        while len(self.held) < at + 1 + size:
            if not self.more(patience):
                return None
        body = bytes(self.held[at + 1 : at + 1 + size])
        del self.held[: at + 1 + size]
        if words[0] == "after":
            return words, [there(self.out, int(words[1])), there(self.err, int(words[2]))]
        return words, body

    def start(self, code, flags="-", env=None):
        """Sends a cell."""
        if self.ready is None:
            words, body = self.frame()
            assert words[0] == "ready", words
            self.ready = json.loads(body)
        self.count += 1
        text = code.encode("utf-8")
        tail = b"".join(b"%b=%b\0" % (k.encode(), v.encode()) for k, v in (env or {}).items())
        self.send("execute %d %s %d" % (self.count, flags, len(text)), text + tail)

    def run(self, code, flags="-", env=None, answers=(), patience=PATIENCE):
        """Runs a cell and returns what came of it."""
        self.start(code, flags, env)
        return self.finish(answers, patience)

    def finish(self, answers=(), patience=PATIENCE):
        """Everything up to `done`."""
        made = Outcome()
        answers = list(answers)
        while True:
            found = self.frame(patience)
            if found is None:
                made.status = "died"
                return made
            words, body = found
            made.take(words, body)
            if words[0] == "done":
                return made
            if words[0] == "input":
                self.send(*(answers.pop(0) if answers else ("refuse", b"no more answers")))

    def interrupt(self):
        os.killpg(self.pid, signal.SIGINT)

    def end(self):
        if self.open:
            self.open = False
            for number in (self.out, self.err, self.request, self.answer):
                os.close(number)
            if self.pid:
                try:
                    os.killpg(self.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass


class Outcome:
    """What a cell gave."""

    def __init__(self):
        self.status = None
        self.out = self.err = ""
        self.text = None
        self.result = None
        self.displays = []
        self.error = None
        self.order = []
        self.asked = []
        self.modules = []

    def take(self, words, body):
        kind = words[0]
        self.order.append(kind)
        if kind == "stdout":
            self.out += body.decode("utf-8", "replace")
        elif kind == "stderr":
            self.err += body.decode("utf-8", "replace")
        elif kind == "after":
            self.out += body[0].decode("utf-8", "replace")
            self.err += body[1].decode("utf-8", "replace")
        elif kind == "text":
            self.text = body.decode()
        elif kind == "done":
            self.status = words[1]
            self.modules = json.loads(body)["modules"] if body else []
        elif kind == "display":
            self.displays.append(json.loads(body))
        elif kind == "result":
            self.result = json.loads(body)
            self.text = self.result["data"].get("text/plain")
        elif kind == "error":
            self.error = json.loads(body)
        elif kind == "input":
            self.asked.append(json.loads(body))
