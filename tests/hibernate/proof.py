"""Runs in the sandbox: a server that holds a terminal, a watch and a counter.

It answers with the counter, when the terminal and the watch gave what they should.
"""

import ctypes
import http.server
import os
import pty
import select
import threading
import time

shell, terminal = pty.fork()
if shell == 0:
    os.execv("/bin/bash", ["bash", "--norc", "--noediting"])
libc = ctypes.CDLL(None)
os.makedirs("/home/user/watched", exist_ok=True)
watch = libc.inotify_init1(0)
libc.inotify_add_watch(watch, b"/home/user/watched", 0x100)
state = {"count": 0, "asked": 0}


def count():
    while True:
        state["count"] += 1
        time.sleep(0.005)


def read_until(descriptor, wanted):
    seen = b""
    while wanted not in seen:
        if not select.select([descriptor], [], [], 10)[0]:
            raise OSError(f"{wanted} did not come, but {seen}")
        seen += os.read(descriptor, 4096)


class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        state["asked"] += 1
        number = state["asked"]
        # The shell remembers, too.
        os.write(terminal, b"n=$((n+1)); echo have-$n-end\n")
        read_until(terminal, b"have-%d-end" % number)
        name = f"file-{number}"
        open(f"/home/user/watched/{name}", "w").close()
        read_until(watch, name.encode())
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"%d %d" % (number, state["count"]))

    def log_message(self, *_):
        pass


threading.Thread(target=count, daemon=True).start()
http.server.ThreadingHTTPServer(("127.0.0.1", 8123), Server).serve_forever()
