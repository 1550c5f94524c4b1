"""Runs in the sandbox: uses a TCP connection, a terminal and a watch, again and again.

Every round writes a line to /workspace/log when all three gave what they should.
"""

import ctypes
import os
import pty
import select
import socket
import sys
import time
import traceback



def note(*error):
    with open("/workspace/error", "w") as file:
        traceback.print_exception(*error, file=file)


sys.excepthook = note
server = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(server.getsockname())
far, _ = server.accept()
master, terminal = pty.openpty()
libc = ctypes.CDLL(None)
os.makedirs("/home/user/watched")
watch = libc.inotify_init1(0)
libc.inotify_add_watch(watch, b"/home/user/watched", 0x100)

round_number = 0
while True:
    round_number += 1
    word = b"round %d\n" % round_number
    near.sendall(word)
    assert far.recv(100) == word
    os.write(terminal, word)
    # A terminal may say a line in two pieces.
    said = b""
    while not said.endswith(b"\n"):
        said += os.read(master, 100)
    assert said == word.replace(b"\n", b"\r\n")
    # CRIU loses events that nobody has read yet: then another one has to come.
    for attempt in range(100):
        name = f"{round_number}-{attempt}"
        open(f"/home/user/watched/{name}", "w").close()
        if select.select([watch], [], [], 1)[0]:
            assert name.encode() in os.read(watch, 4096)
            break
    else:
        raise SystemExit("the watch is dead")
    with open("/workspace/log", "a") as log:
        log.write(f"{round_number}\n")
    time.sleep(0.02)
