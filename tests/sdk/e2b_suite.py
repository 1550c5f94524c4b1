"""What users of E2B do, through its official SDK, against our daemon.

Reads E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY as the SDK does; both addresses are the
daemon's own, which finds the sandbox by headers. Run it with the SDK's interpreter.
"""

import asyncio
import http.client
import json
import os
import sys
import time
from urllib.parse import urlsplit

DAEMON = urlsplit(os.environ["E2B_API_URL"]).netloc


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
    assert sandbox.pty.kill(shell.pid)
    while sandbox.pty.kill(shell.pid):
        time.sleep(0.01)
    try:
        sandbox.pty.send_stdin(shell.pid, b"x")
        raise AssertionError("a terminal that is gone took input")
    except NotFoundException:
        pass


def watching(sandbox):
    from e2b import FilesystemEventType as Kind
    from e2b import NotFoundException

    sandbox.files.make_dir("watched")
    handle = sandbox.files.watch_dir("watched", recursive=True, include_entry=True)
    sandbox.files.write("watched/new.txt", "text")
    events = handle.get_new_events()
    assert [(event.name, event.type) for event in events] == [
        ("new.txt", Kind.CREATE),
        ("new.txt", Kind.CHMOD),
        ("new.txt", Kind.WRITE),
    ], events
    assert {event.entry.path for event in events} == {"/home/user/watched/new.txt"}
    sandbox.files.make_dir("watched/nested")
    sandbox.files.write("watched/nested/new.txt", "text")
    seen = {(event.name, event.type) for event in handle.get_new_events()}
    assert {("nested", Kind.CREATE), ("nested/new.txt", Kind.WRITE)} <= seen, seen
    sandbox.files.rename("watched/new.txt", "watched/other")
    sandbox.files.remove("watched/other")
    assert [(event.name, event.type) for event in handle.get_new_events()] == [
        ("new.txt", Kind.RENAME),
        ("other", Kind.CREATE),
        ("other", Kind.REMOVE),
    ]
    handle.stop()
    try:
        sandbox.files.watch_dir("not there")
        raise AssertionError("a folder that is not there is watched")
    except NotFoundException:
        pass
    asyncio.run(streamed())


async def streamed():
    from e2b import AsyncSandbox
    from e2b import FilesystemEventType as Kind

    sandbox = await AsyncSandbox.create()
    await sandbox.files.make_dir("streamed")
    events = asyncio.Queue()
    handle = await sandbox.files.watch_dir("streamed", events.put_nowait, recursive=True)
    await sandbox.files.write("streamed/new.txt", "text")
    for kind in (Kind.CREATE, Kind.CHMOD, Kind.WRITE):
        event = await asyncio.wait_for(events.get(), 10)
        assert (event.name, event.type) == ("new.txt", kind), event
    await sandbox.files.make_dir("streamed/nested")
    await sandbox.files.write("streamed/nested/new.txt", "text")
    while True:
        event = await asyncio.wait_for(events.get(), 10)
        if (event.name, event.type) == ("nested/new.txt", Kind.WRITE):
            break
    await handle.stop()
    await sandbox.kill()


def transfers(sandbox):
    text = "".join(str(number) for number in range(100_000))
    sandbox.files.write("compressed", text, gzip=True)
    assert sandbox.files.read("compressed") == text
    assert sandbox.files.read("compressed", gzip=True) == text
    written = sandbox.files.write("described", "text", metadata={"Author": "me", "kind": "a b"})
    assert written.metadata == {"author": "me", "kind": "a b"}, written
    assert sandbox.files.get_info("described").metadata == {"author": "me", "kind": "a b"}
    sandbox.files.write("described", "text", metadata={"other": "1"})
    assert sandbox.files.get_info("described").metadata == {"other": "1"}
    assert not sandbox.files.write("described", "text").metadata


def request(method, url, body=None, headers=None):
    """What somebody does who has an address and no SDK."""
    connection = http.client.HTTPConnection(DAEMON, timeout=20)
    parts = urlsplit(url)
    connection.request(method, f"{parts.path}?{parts.query}", body, headers or {})
    answer = connection.getresponse()
    return answer.status, answer.read()


def secured(sandbox):
    """Only the token, or what it signed, opens a sandbox."""
    from e2b.sandbox.signature import get_signature

    token = sandbox._envd_access_token
    assert token
    address = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
    files = f"http://{DAEMON}/files?path=described"
    sandbox.files.write("described", "text")
    assert request("GET", files, headers=address)[0] == 401
    assert request("GET", files, headers={**address, "X-Access-Token": "wrong"})[0] == 401
    assert request("GET", files, headers={**address, "X-Access-Token": token}) == (200, b"text")
    assert request("POST", f"http://{DAEMON}/init", "{}", {**address, "X-Access-Token": token})[0] == 404
    assert request("GET", f"http://{DAEMON}/health", headers=address)[0] == 204
    # A signed address has no sandbox in it; the signature tells which one it is.
    assert request("GET", sandbox.download_url("described")) == (200, b"text")
    assert request("GET", sandbox.download_url("described", user="user"))[1] == b"text"
    soon = sandbox.download_url("described", use_signature_expiration=60)
    assert request("GET", soon) == (200, b"text")
    past = get_signature("described", "read", None, token, -60)
    url = sandbox._file_url("described", None, past["signature"], past["expiration"])
    status, body = request("GET", url)
    assert (status, json.loads(body)["message"]) == (401, "signature is already expired"), body
    octets = {"content-type": "application/octet-stream"}
    upload = sandbox.upload_url("up load.txt", use_signature_expiration=60)
    assert request("POST", upload, b"new", octets)[0] == 200
    assert sandbox.files.read("up load.txt") == "new"
    status, body = request("POST", upload.replace("up%20load", "other"), b"new", {**octets, **address})
    assert (status, json.loads(body)["message"]) == (401, "invalid signature"), body
    assert request("GET", files)[0] == 401


def lives(sandbox):
    """Made, found, connected to, given time, killed."""
    from e2b import AuthenticationException, NotFoundException, Sandbox, SandboxQuery

    info = sandbox.get_info()
    assert (info.sandbox_id, info.metadata) == (sandbox.sandbox_id, {"a b": "c&d"}), info
    assert sandbox.is_running()
    listed = Sandbox.list(query=SandboxQuery(metadata={"a b": "c&d"})).next_items()
    assert [one.sandbox_id for one in listed] == [sandbox.sandbox_id], listed
    assert not Sandbox.list(query=SandboxQuery(metadata={"a b": "other"})).next_items()
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.commands.run("echo $COLOUR").stdout == "green\n"
    sandbox.set_timeout(500)
    left = (sandbox.get_info().end_at - sandbox.get_info().started_at).total_seconds()
    assert 480 < left < 600, left
    pages = Sandbox.list(limit=1)
    seen = []
    while pages.has_next:
        seen += [one.sandbox_id for one in pages.next_items()]
    assert sandbox.sandbox_id in seen and len(seen) == len(set(seen)), seen
    metrics = sandbox.get_metrics()
    assert metrics and metrics[0].mem_total > 0, metrics

    short = Sandbox.create(timeout=2)
    deadline = time.time() + 20
    while short.is_running():
        assert time.time() < deadline, "it outlives its time"
        time.sleep(0.1)
    # Its guest ends first, and a moment later all of it is gone.
    for call in (short.get_info, lambda: Sandbox.connect(short.sandbox_id)):
        while True:
            try:
                call()
            except NotFoundException:
                break
            assert time.time() < deadline, "a sandbox whose time is over is there"
            time.sleep(0.1)
    assert not short.kill()
    try:
        Sandbox.create(api_key="e2b_" + "0" * 40)
        raise AssertionError("a wrong key opened the door")
    except AuthenticationException:
        pass


def pausing():
    """Paused and listed so, resumed by connect with what ran in it; paused when its time is over."""
    from e2b import Sandbox, SandboxQuery, SandboxState

    sandbox = Sandbox.create(timeout=60)
    running = sandbox.commands.run("sleep 1000", background=True)
    assert sandbox.pause() and not sandbox.pause()
    assert not sandbox.is_running()
    assert sandbox.get_info().state == SandboxState.PAUSED
    paused = Sandbox.list(query=SandboxQuery(state=[SandboxState.PAUSED])).next_items()
    assert [one.sandbox_id for one in paused] == [sandbox.sandbox_id], paused
    again = Sandbox.connect(sandbox.sandbox_id, timeout=60)
    assert again.is_running() and sandbox.get_info().state == SandboxState.RUNNING
    assert running.pid in [one.pid for one in again.commands.list()]
    assert sandbox.pause() and sandbox.kill()

    timed = Sandbox.create(timeout=2, lifecycle={"on_timeout": "pause", "auto_resume": True})
    deadline = time.time() + 20
    while timed.get_info().state != SandboxState.PAUSED:
        assert time.time() < deadline, "it outlives its time"
        time.sleep(0.1)
    assert timed.commands.run("echo hi").stdout == "hi\n"
    assert timed.kill()


def snapshots():
    """Taken while it runs, made into others with what ran in it, listed, deleted; and copies."""
    from e2b import Sandbox

    sandbox = Sandbox.create(timeout=120)
    sandbox.files.write("/workspace/mark", "first")
    running = sandbox.commands.run("sleep 1000", background=True)
    taken = sandbox.create_snapshot(name="first")
    cold = sandbox.create_snapshot(name="cold", mode="filesystem")
    assert taken.snapshot_id == "first:default" and taken.names == ["first:default"], taken
    assert sandbox.is_running()
    listed = Sandbox.list_snapshots(sandbox_id=sandbox.sandbox_id).next_items()
    assert {one.snapshot_id for one in listed} == {"first:default", "cold:default"}, listed
    sandbox.files.write("/workspace/mark", "second")
    copy = Sandbox.create(taken.snapshot_id, timeout=60)
    assert copy.sandbox_id != sandbox.sandbox_id
    assert copy.files.read("/workspace/mark") == "first"
    assert running.pid in [one.pid for one in copy.commands.list()]
    anew = Sandbox.create(cold.snapshot_id, timeout=60)
    assert anew.files.read("/workspace/mark") == "first"
    assert running.pid not in [one.pid for one in anew.commands.list()]
    forks = sandbox.fork(timeout=60, count=2)
    assert all(isinstance(one, Sandbox) for one in forks), forks
    for one in forks:
        assert one.files.read("/workspace/mark") == "second"
        assert running.pid in [process.pid for process in one.commands.list()]
    for one in [copy, anew, *forks]:
        assert one.kill()
    assert Sandbox.delete_snapshot(taken.snapshot_id) and not Sandbox.delete_snapshot(taken.snapshot_id)
    assert sandbox.files.read("/workspace/mark") == "second"
    assert Sandbox.delete_snapshot(cold.snapshot_id) and sandbox.kill()


def first_generation():
    """What SDKs before 2.51 send."""
    key = {"X-API-KEY": os.environ["E2B_API_KEY"], "Content-Type": "application/json"}
    wish = json.dumps({"templateID": "base", "timeout": 60, "secure": False})
    status, body = request("POST", f"http://{DAEMON}/sandboxes", wish, key)
    made = json.loads(body)
    assert status == 201 and made["sandboxID"] and not made["envdAccessToken"], body
    identity = made["sandboxID"]
    # Without a token the id is all that it takes, as it was with E2B.
    address = {"E2b-Sandbox-Id": identity, "E2b-Sandbox-Port": "49983"}
    assert request("GET", f"http://{DAEMON}/metrics", headers=address)[0] == 200
    status, body = request("POST", f"http://{DAEMON}/sandboxes/{identity}/connect", '{"timeout": 60}', key)
    assert status == 200, body
    status, body = request("GET", f"http://{DAEMON}/sandboxes", headers=key)
    assert identity in [one["sandboxID"] for one in json.loads(body)], body
    assert request("DELETE", f"http://{DAEMON}/sandboxes/{identity}", headers=key)[0] == 204
    assert request("DELETE", f"http://{DAEMON}/sandboxes/{identity}", headers=key)[0] == 404
    assert request("GET", f"http://{DAEMON}/metrics", headers=address)[0] == 502


def main():
    from e2b import Sandbox

    sandbox = Sandbox.create(metadata={"a b": "c&d"}, envs={"COLOUR": "green"})
    for part in (commands, background, terminals, files, watching, transfers, secured, lives):
        part(sandbox)
        print(part.__name__, "held")
    assert sandbox.kill() and not sandbox.kill()
    pausing()
    print("pausing held")
    if "snapshots" in sys.argv:
        snapshots()
        print("snapshots held")
    first_generation()
    print("first generation held")


main()
