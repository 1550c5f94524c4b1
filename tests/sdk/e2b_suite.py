"""What users of E2B do, through its official SDK, against our guest.

usage: e2b_suite.py PID    (PID: process 1 of a sandbox)

In its debug mode the SDK speaks with an agent on port 49983 of this machine. So this program
goes into a network namespace of its own, and carries connections to that port into the
sandbox, as the gateway will. Run it with the SDK's interpreter, as root.
"""

import ctypes
import os
import socket
import subprocess
import sys
import threading

NEW_NETWORK = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


def own_network():
    if LIBC.unshare(NEW_NETWORK) != 0:
        sys.exit("no network namespace can be made")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def carry(pid):
    """Serves port 49983 here from inside the sandbox's namespace: a thread may be elsewhere."""
    server = socket.create_server(("127.0.0.1", 49983))

    def serve():
        if LIBC.setns(os.open(f"/proc/{pid}/ns/net", os.O_RDONLY), NEW_NETWORK) != 0:
            os._exit(3)
        while True:
            near, _ = server.accept()
            far = socket.socket(socket.AF_UNIX)
            far.connect("\0soma-guest")
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=pump, args=(source, target), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()


def pump(source, target):
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def commands(sandbox):
    from e2b import CommandExitException, TimeoutException

    done = sandbox.commands.run("echo hi; echo oh >&2; id -un; pwd", envs={"A": "b"})
    assert (done.stdout, done.stderr) == ("hi\nuser\n/home/user\n", "oh\n"), done
    assert sandbox.commands.run("echo $A", envs={"A": "b"}).stdout == "b\n"
    assert sandbox.commands.run("whoami", user="root").stdout == "root\n"
    assert sandbox.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    try:
        sandbox.commands.run("exit 3")
        raise AssertionError("a failure passed")
    except CommandExitException as failure:
        assert failure.exit_code == 3
    try:
        sandbox.commands.run("sleep 30", timeout=1)
        raise AssertionError("no timeout")
    except TimeoutException:
        pass
    heard = []
    sandbox.commands.run("for i in 1 2 3; do echo $i; done", on_stdout=heard.append)
    assert "".join(heard) == "1\n2\n3\n", heard


def background(sandbox):
    from e2b import CommandExitException

    cat = sandbox.commands.run("cat", background=True, stdin=True)
    assert cat.pid in [process.pid for process in sandbox.commands.list()]
    sandbox.commands.send_stdin(cat.pid, "hello\n")
    sandbox.commands.close_stdin(cat.pid)
    assert cat.wait().stdout == "hello\n"
    sleep = sandbox.commands.run("sleep 600", background=True)
    again = sandbox.commands.connect(sleep.pid)
    assert sandbox.commands.kill(sleep.pid)
    for handle in (sleep, again):
        try:
            handle.wait()
            raise AssertionError("a killed command succeeded")
        except CommandExitException:
            pass
    assert not sandbox.commands.kill(sleep.pid)


def files(sandbox):
    from e2b import FileNotFoundException

    written = sandbox.files.write("a/ü b.txt", "text")
    assert written.path == "/home/user/a/ü b.txt", written
    assert sandbox.files.read("a/ü b.txt") == "text"
    assert sandbox.files.read("a/ü b.txt", format="bytes") == b"text"
    (entry,) = sandbox.files.list("a")
    assert (entry.name, entry.size, entry.owner, entry.permissions) == (
        "ü b.txt",
        4,
        "user",
        "-rw-r--r--",
    ), entry
    assert sandbox.files.make_dir("d") and not sandbox.files.make_dir("d")
    assert sandbox.files.rename("a/ü b.txt", "d/c").path == "/home/user/d/c"
    assert sandbox.files.exists("d/c") and not sandbox.files.exists("a/ü b.txt")
    sandbox.files.remove("d")
    assert not sandbox.files.exists("d")
    try:
        sandbox.files.read("d/c")
        raise AssertionError("a file that is not there was read")
    except FileNotFoundException:
        pass
    several = [{"path": "x1", "data": "1"}, {"path": "/workspace/x2", "data": b"\0\xff"}]
    assert [one.path for one in sandbox.files.write_files(several)] == [
        "/home/user/x1",
        "/workspace/x2",
    ]
    assert sandbox.files.read("/workspace/x2", format="bytes") == b"\0\xff"
    large = os.urandom(5 << 20)
    sandbox.files.write("large", large)
    assert bytes(sandbox.files.read("large", format="bytes")) == large


def terminals(sandbox):
    from e2b import CommandExitException, NotFoundException
    from e2b.sandbox.commands.command_handle import PtySize

    def until(events, text):
        """Reads a terminal until it has shown a text."""
        shown = b""
        for _, _, data in events:
            shown += data or b""
            if text in shown:
                return shown
        raise AssertionError(f"{text} is not in {shown}")

    shell = sandbox.pty.create(PtySize(rows=30, cols=100), cwd="/tmp", envs={"A": "b"}, timeout=0)
    sandbox.pty.send_stdin(shell.pid, b"PS1=; stty -echo; tty; stty size; echo $TERM $A $PWD\n")
    shown = until(iter(shell), b"xterm-256color b /tmp\r\n")
    assert b"/dev/pts/" in shown and b"30 100\r\n" in shown, shown
    assert b"no job control" not in shown, shown
    sandbox.pty.resize(shell.pid, PtySize(rows=40, cols=120))
    sandbox.pty.stream_input(shell.pid, [b"printf '\\033[2J'; stty ", b"size\n"])
    until(iter(shell), b"40 120\r\n")
    shell.disconnect()

    again = sandbox.pty.connect(shell.pid, timeout=0)
    assert again.pid == shell.pid
    until(iter(again), b"40 120")
    sandbox.pty.send_stdin(shell.pid, b"sleep 100 & exit 5\n")
    try:
        again.wait()
        raise AssertionError("a failure passed")
    except CommandExitException as failure:
        assert failure.exit_code == 5, failure

    shell = sandbox.pty.create(PtySize(rows=24, cols=80), user="root")
    assert sandbox.pty.kill(shell.pid) and not sandbox.pty.kill(shell.pid)
    try:
        sandbox.pty.send_stdin(shell.pid, b"x")
        raise AssertionError("a terminal that is gone took input")
    except NotFoundException:
        pass


def main():
    own_network()
    carry(int(sys.argv[1]))
    os.environ.update(E2B_DEBUG="true", E2B_API_KEY="e2b_" + "0" * 40)
    from e2b import Sandbox

    sandbox = Sandbox.create()
    for part in (commands, background, terminals, files):
        part(sandbox)
        print(part.__name__, "held")


main()
