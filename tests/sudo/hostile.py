"""Runs in the sandbox: sends the guest what no `sudo` would.

After each attempt a real `sudo` must still work, and at once. Each check prints its name when it
did not hold.
"""

import array
import fcntl
import os
import socket
import struct
import subprocess
import sys
import time

DOOR = "\0soma-sudo"


def send(word, descriptors):
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    door.settimeout(10)
    door.connect(DOOR)
    door.sendmsg([word], rights if descriptors else [])
    door.close()


def answer(conversation):
    """What came back; nothing when the other end was closed without a word."""
    conversation.settimeout(10)
    return conversation.recv(8192)


def conversation():
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def sealed(data):
    file = os.memfd_create("x", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(file, data)
    fcntl.fcntl(file, 1033, 2 | 4 | 8)
    return file


def works():
    begin = time.monotonic()
    code = subprocess.run(["sudo", "true"], timeout=30).returncode
    if code != 0:
        print("sudo fails afterwards")
    if time.monotonic() - begin > 5:
        print("sudo is held up")


def garbage():
    for word in [b"", b"x", b"run", b"ask", b"\xff" * 16, b"run" * 5000]:
        send(word, [])
    works()


def too_many_descriptors():
    null = os.open("/dev/null", os.O_RDWR)
    for count in [1, 2, 5, 7, 8, 9, 100, 253]:
        ours, theirs = conversation()
        send(b"run", [theirs.fileno()] + [null] * (count - 1))
        theirs.close()
        reply = answer(ours)
        if reply and not reply.startswith(b"\x01"):
            print(count, "descriptors were taken:", reply)
    works()


def wishes_that_make_no_sense():
    null = os.open("/dev/null", os.O_RDWR)
    folder = os.open("/", os.O_RDONLY)
    reader, writer = os.pipe()
    endless = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(endless, 1 << 40)
    file = os.open("/tmp/wish", os.O_RDWR | os.O_CREAT)
    for wish in [null, folder, reader, endless, file, sealed(b""), sealed(b"\xff" * 100),
                 sealed(b"\x00" * (9 << 20)), sealed(os.urandom(1000))]:
        ours, theirs = conversation()
        send(b"run", [theirs.fileno(), wish, folder, null, null, null])
        theirs.close()
        reply = answer(ours)
        if not reply.startswith(b"\x01"):
            print("a wish was taken:", reply)
    works()


def conversations_that_are_none():
    null = os.open("/dev/null", os.O_RDWR)
    folder = os.open("/", os.O_RDONLY)
    reader, writer = os.pipe()
    for none in [null, folder, reader, writer]:
        send(b"run", [none, sealed(b"x"), folder, null, null, null])
        send(b"ask", [none])
    works()


def sockets_that_make_whoever_closes_them_wait():
    servers = []
    for _ in range(4):
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)
        # Whoever leaves does not wait, so this one does and leaves the last close to the guest,
        # which is kept busy with questions until then.
        child = os.fork()
        if child == 0:
            near = socket.create_connection(server.getsockname())
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
            near.setblocking(False)
            try:
                while True:
                    near.send(b"x" * 65536)
            except BlockingIOError:
                pass
            ours, theirs = conversation()
            for _ in range(20):
                send(b"ask", [theirs.fileno()])
            send(b"nonsense", [theirs.fileno(), near.fileno()])
            os._exit(0)
        os.waitpid(child, 0)
    works()
    for server in servers:
        server.close()


def many_at_once_who_say_nothing():
    silent = []
    for _ in range(300):
        door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        door.connect(DOOR)
        silent.append(door)
    works()


def a_shim_that_dies_takes_its_program_along():
    shim = subprocess.Popen(["sudo", "sleep", "4321"])
    while not running("4321"):
        time.sleep(0.01)
    shim.kill()
    shim.wait()
    end = time.monotonic() + 20
    while running("4321"):
        if time.monotonic() > end:
            print("the program lives on")
            break
        time.sleep(0.01)


def running(word):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if open(f"/proc/{pid}/cmdline", "rb").read() == f"sleep\0{word}\0".encode():
                return True
        except OSError:
            pass
    return False


for act in [garbage, too_many_descriptors, wishes_that_make_no_sense, conversations_that_are_none,
            many_at_once_who_say_nothing, a_shim_that_dies_takes_its_program_along,
            sockets_that_make_whoever_closes_them_wait]:
    try:
        act()
    except Exception as error:
        print(act.__name__, repr(error))
    sys.stdout.flush()
print("done")
