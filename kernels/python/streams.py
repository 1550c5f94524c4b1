"""Standard output and error of a kernel: the library's own objects over frames.

Text and bytes go through the interpreter's own buffers, which is what makes
them fast. Only the first write after a flush passes through `first`, which
keeps the order of the two streams and lets a thread flush 10 ms later.
"""
import io
import os
import sys
import time
import _thread

wire = part("wire")
PAUSE = 0.01
ROOM = 1 << 16

wake = _thread.allocate_lock()
gate = _thread.allocate_lock()
wake.acquire()
started = False
framed = False


class Raw(io.RawIOBase):
    """The end of a stream: a frame to the guest, or the descriptor where there is no guest."""

    def __init__(self, name, number):
        self.name = "<%s>" % name
        self.mode = "wb"
        self.word = name.encode()
        self.number = number

    def write(self, data):
        if not framed:
            return os.write(self.number, data)
        size = len(data)
        if size <= wire.LONGEST:
            wire.send(self.word, data)
        else:
            for at in range(0, size, ROOM * 16):
                wire.send(self.word, data[at : at + ROOM * 16])
        return size

    def writable(self):
        return True

    def fileno(self):
        return self.number

    def isatty(self):
        return False

    def close(self):
        """Stays open: who closes standard output in a cell still wants the next cell's."""


class Buffer(io.BufferedWriter):
    """A buffer that hears of the first write after each flush."""

    other = None

    def arm(self):
        self.write = self.first

    def first(self, data):
        """Makes what the other stream holds go before this, and has this flushed soon."""
        other = self.other
        if "write" not in other.__dict__:
            other.arm()
            other.flush()
        if not framed:
            count = io.BufferedWriter.write(self, data)
            self.flush()
            return count
        self.__dict__.pop("write", None)
        soon()
        return io.BufferedWriter.write(self, data)

    def close(self):
        self.flush()


class Text(io.TextIOWrapper):
    """Text over such a buffer."""

    def close(self):
        self.flush()


def make(name, number):
    """One stream."""
    buffer = Buffer(Raw(name, number), ROOM)
    text = Text(buffer, "utf-8", "replace", "\n", write_through=True)
    text.mode = "w"
    return text, buffer


def install():
    """Puts both in place of the interpreter's."""
    global out, err, out_buffer, err_buffer
    out, out_buffer = make("stdout", 1)
    err, err_buffer = make("stderr", 2)
    out_buffer.other, err_buffer.other = err_buffer, out_buffer
    out_buffer.arm()
    err_buffer.arm()
    # The old objects own the descriptors and would close them when they go.
    wire.kept = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    sys.stdout = sys.__stdout__ = out
    sys.stderr = sys.__stderr__ = err


def flush():
    """Sends what either holds."""
    for buffer in (out_buffer, err_buffer):
        if "write" not in buffer.__dict__:
            buffer.arm()
            buffer.flush()


def soon():
    """Wakes the thread that flushes, which is started when it is first needed."""
    global started
    if not started:
        started = True
        try:
            _thread.start_new_thread(flusher, ())
        except RuntimeError:
            started = False
            return
    try:
        wake.release()
    except RuntimeError:
        pass


def flusher():
    """Flushes a little after each wake."""
    while True:
        wake.acquire()
        time.sleep(PAUSE)
        gate.acquire()
        try:
            flush()
        except Exception:
            pass
        finally:
            gate.release()


def before_fork():
    """Nothing may be held when the process is doubled, or both would write it."""
    flush()
    gate.acquire()
    wire.lock.acquire()


def after_fork_here():
    wire.lock.release()
    gate.release()


def after_fork_there():
    """In the child: no guest, no thread, output straight to the descriptors."""
    global framed
    wire.lock.release()
    gate.release()
    wire.alone = True
    framed = False
    out_buffer.arm()
    err_buffer.arm()
