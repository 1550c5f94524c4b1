"""Starts a kernel as the guest does and speaks the frames of kernels/README.md with it.

Only the standard library is used: the tests run with whatever Python is there.
"""

import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "kernels"
PATIENCE = float(os.environ.get("SOMA_PATIENCE", "60"))


def program(language):
    """All files of a language's folder, in the order of their names."""
    return b"".join(path.read_bytes() for path in sorted((KERNELS / language).iterdir()))


class Ended(Exception):
    """The kernel closed its pipe."""


class Cell:
    """What came between an `execute` and its `done`."""

    def __init__(self):
        self.frames = []
        self.status = None

    def joined(self, kind):
        return b"".join(payload for words, payload in self.frames if words[0] == kind).decode("utf-8")

    def all(self, kind):
        return [payload for words, payload in self.frames if words[0] == kind]

    @property
    def stdout(self):
        return self.joined("stdout")

    @property
    def stderr(self):
        return self.joined("stderr")

    @property
    def text(self):
        found = self.all("text")
        return found[-1].decode("utf-8") if found else None

    @property
    def result(self):
        return json.loads(self.all("result")[-1])["data"]

    @property
    def displays(self):
        return [json.loads(payload)["data"] for payload in self.all("display")]

    @property
    def error(self):
        found = self.all("error")
        return json.loads(found[-1]) if found else None


class Kernel:
    """One process of an interpreter with the descriptors 0 to 5 in place."""

    def __init__(self, language, command, cwd=None, env=None, before=None):
        text = tempfile.TemporaryFile()
        text.write(program(language))
        text.seek(0)
        requests, self.requests = os.pipe()
        self.frames, frames = os.pipe()
        interrupts, self.interrupts = os.pipe()
        self.out, out = os.pipe()
        self.err, err = os.pipe()
        wanted = [text.fileno(), out, err, requests, frames, interrupts]

        def place():
            # High first, so that no descriptor is overwritten before it is moved.
            high = [os.dup2(number, 500 + at) for at, number in enumerate(wanted)]
            for at, number in enumerate(high):
                os.dup2(number, at)
            for number in high:
                os.close(number)
            if before is not None:
                before()

        # The pipe by which Popen hears of a failed start lies above the closed range; it closes itself.
        self.process = subprocess.Popen(command, cwd=cwd, env=env, start_new_session=True, close_fds=False, preexec_fn=place)
        text.close()
        for number in (requests, frames, interrupts, out, err):
            os.close(number)
        self.buffer = bytearray()
        self.own = {self.out: bytearray(), self.err: bytearray()}
        self.ended = {}
        self.over = False
        self.number = 0
        self.closed = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.closed:
            return
        self.closed = True
        os.close(self.requests)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for number in (self.frames, self.interrupts, self.out, self.err):
            os.close(number)

    def send(self, words, payload=b""):
        data = ("%s %d\n" % (words, len(payload))).encode() + payload
        while data:
            # What the kernel says meanwhile is read, or both sides would wait for each other.
            readable, writable, _ = select.select([self.frames], [self.requests], [], PATIENCE)
            if readable:
                self._more(0)
            if writable:
                data = data[os.write(self.requests, data[:4096]):]

    def _more(self, patience):
        watched = ([] if self.over else [self.frames]) + list(self.own)
        readable, _, _ = select.select(watched, [], [], patience)
        for number in list(self.own):
            if number in readable:
                piece = os.read(number, 1 << 16)
                if piece:
                    self.own[number] += piece
                else:
                    self.ended[number] = self.own.pop(number)
        if self.frames in readable:
            piece = os.read(self.frames, 1 << 16)
            if not piece:
                self.over = True
                raise Ended
            self.buffer += piece
        return bool(readable)

    def frame(self, patience=PATIENCE):
        until = time.monotonic() + patience
        while True:
            end = self.buffer.find(b"\n")
            if end >= 0:
                words = self.buffer[:end].decode().split(" ")
                length = int(words[-1])
                if len(self.buffer) >= end + 1 + length:
                    payload = bytes(self.buffer[end + 1:end + 1 + length])
                    del self.buffer[:end + 1 + length]
                    return words, payload
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("no frame within %s s; so far %r" % (patience, bytes(self.buffer[:200])))
            self._more(left)

    def ready(self):
        try:
            words, payload = self.frame()
        except Ended:
            raise AssertionError("the kernel did not start: %s" % self.own_output(2, b"?", 1).decode()) from None
        assert words[0] == "ready", (words, payload)
        return json.loads(payload)

    def start(self, code, flags="-", env=None):
        self.number += 1
        code = code if isinstance(code, bytes) else code.encode("utf-8", "surrogatepass")
        variables = b"".join(name.encode() + b"=" + value.encode() + b"\0" for name, value in (env or {}).items())
        self.send("execute %d %s %d" % (self.number, flags, len(code)), code + variables)

    def finish(self, cell=None, keep=True, patience=PATIENCE, answer=None):
        cell = cell or Cell()
        while True:
            words, payload = self.frame(patience)
            if words[0] == "done":
                cell.status = words[1]
                return cell
            if words[0] == "input" and answer is not None:
                cell.frames.append((words, payload))
                self.send(*answer)
                continue
            if keep:
                cell.frames.append((words, payload))

    def run(self, code, flags="-", env=None, answer=None, patience=PATIENCE):
        self.start(code, flags, env)
        return self.finish(answer=answer, patience=patience)

    def until(self, kind, contains=b""):
        """Reads frames until one of this kind contains this; what is read is returned as a cell."""
        cell = Cell()
        gathered = b""
        while contains not in gathered or not gathered:
            words, payload = self.frame()
            cell.frames.append((words, payload))
            if words[0] == kind:
                gathered += payload
        return cell

    def interrupt(self):
        os.write(self.interrupts, b"!")
        os.killpg(self.process.pid, signal.SIGINT)

    def complete(self, code, cursor=None):
        self.send("complete %d" % (len(code) if cursor is None else cursor), code.encode())
        words, payload = self.frame()
        assert words[0] == "completions", (words, payload)
        return json.loads(payload)

    def death(self):
        """Reads to the end of the pipe and returns the exit status."""
        while True:
            try:
                self.frame()
            except Ended:
                return self.process.wait(PATIENCE)

    def memory(self):
        """The resident memory, in bytes."""
        with open("/proc/%d/status" % self.process.pid) as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        return 0

    def own_output(self, number=1, until=b"", patience=PATIENCE):
        """What the process and its children wrote to 1 or 2 themselves."""
        descriptor = self.out if number == 1 else self.err
        end = time.monotonic() + patience
        while descriptor in self.own and until not in self.own[descriptor] and time.monotonic() < end:
            self._more(0.1)
        return bytes(self.own.get(descriptor) or self.ended.get(descriptor) or b"")


class KernelTest(unittest.TestCase):
    """Cases that hold for each language; a subclass gives the language's words for them."""

    language = None
    command = None
    maximum_growth = 64 << 20

    def kernel(self, **options):
        kernel = Kernel(self.language, self.command, **options)
        self.addCleanup(kernel.close)
        self.said = kernel.ready()
        return kernel

    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def check_interrupt(self, kernel, code, marker="started", pause=0):
        """`pause`: a command that is still to be started does not see the signal, and nothing tells when it has been."""
        kernel.start(code)
        kernel.until("stdout", marker.encode())
        time.sleep(pause)
        began = time.monotonic()
        kernel.interrupt()
        cell = kernel.finish(patience=10)
        self.assertEqual(cell.status, "interrupted")
        self.assertLess(time.monotonic() - began, 5)
        return cell

    def check_flat_memory(self, kernel, code, size):
        """Runs a cell that prints `size` bytes and returns how many came, how fast."""
        before = kernel.memory()
        highest = before
        kernel.start(code)
        came = 0
        began = time.monotonic()
        count = 0
        while True:
            words, payload = kernel.frame()
            if words[0] == "done":
                break
            self.assertIn(words[0], ("stdout",), payload[:500])
            came += len(payload)
            count += 1
            if count % 100 == 0:
                highest = max(highest, kernel.memory())
        took = time.monotonic() - began
        self.assertEqual(came, size)
        self.assertLess(highest - before, self.maximum_growth)
        return came / took

    def check_many(self, code, expected):
        kernels = [Kernel(self.language, self.command) for _ in range(20)]
        for kernel in kernels:
            self.addCleanup(kernel.close)
        for kernel in kernels:
            kernel.ready()
        for at, kernel in enumerate(kernels):
            kernel.start(code % at)
        for at, kernel in enumerate(kernels):
            cell = kernel.finish()
            self.assertEqual(cell.status, "ok", cell.frames)
            self.assertIn(expected % at, cell.stdout + (cell.text or "") + kernel.own_output(1, (expected % at).encode(), 2).decode())


def main(default):
    """`python3 tests/kernels/LANGUAGE.py [INTERPRETER] [unittest's arguments]`; returns the interpreter through `default`."""
    arguments = sys.argv[1:]
    if arguments and not arguments[0].startswith("-"):
        default[0] = arguments.pop(0)
    unittest.main(module="__main__", argv=[sys.argv[0]] + arguments)
