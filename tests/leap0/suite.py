"""The quick start and the file calls of Leap0's own SDK against our daemon, effects checked.

Reads LEAP0_BASE_URL and LEAP0_API_KEY as the SDK does. Ends with a line that says how many checks
held; anything that does not hold is an exception.
"""

import sys

import leap0
from leap0 import Leap0Client

checks = 0


def equal(seen, expected):
    global checks
    assert seen == expected, f"{seen!r} is not {expected!r}"
    checks += 1


def refused(kind, words, call):
    global checks
    try:
        answer = call()
    except kind as error:
        assert words in str(error), f"{error} does not say {words!r}"
        assert type(error) is kind, f"{type(error)} is not {kind}"
        checks += 1
        return
    raise AssertionError(f"{words!r} was expected, and it answered {answer!r}")


client = Leap0Client()
sandbox = client.sandboxes.create(vcpu=1, memory=512, timeout=120, env_vars={"COLOUR": "green"})
equal(sandbox.state.value, "running")
equal((sandbox.vcpu, sandbox.memory, sandbox.timeout), (1, 512, 120))

# Commands.
result = sandbox.process.execute(
    command="echo out; echo err >&2; echo $COLOUR $SIZE; pwd; exit 3",
    cwd="/workspace",
    env={"SIZE": "large"},
)
equal((result.exit_code, result.stdout, result.stderr), (3, "out\ngreen large\n/workspace\n", "err\n"))
result = sandbox.process.execute(command="sleep 60 & echo started", timeout=20)
equal((result.exit_code, result.stdout), (0, "started\n"))
result = sandbox.process.execute(command="echo before; sleep 60", timeout=1)
equal((result.exit_code, result.stdout), (124, "before\n"))
refused(leap0.Leap0Error, "does not exist", lambda: sandbox.process.execute(command="true", cwd="/no/such"))

# Files: there and back, also what is no text.
files = sandbox.filesystem
files.write_file(path="/workspace/notes/one.txt", content="first\nsecond\nthird\n")
equal(files.read_file(path="/workspace/notes/one.txt"), "first\nsecond\nthird\n")
equal(files.read_file(path="/workspace/notes/one.txt", head=1), "first\n")
equal(files.read_file(path="/workspace/notes/one.txt", tail=2), "second\nthird\n")
equal(files.read_file(path="/workspace/notes/one.txt", offset=6, limit=3), "sec")
every_byte = bytes(range(256)) * 4096
files.write_bytes(path="/workspace/bytes", content=every_byte, permissions="600")
equal(files.read_bytes(path="/workspace/bytes"), every_byte)
files.write_files(files={"/workspace/many/a b": "one", '/workspace/many/"q"': "two"})
equal(files.read_files(paths=["/workspace/many/a b", "/workspace/notes/one.txt"]),
      {"/workspace/many/a b": "one", "/workspace/notes/one.txt": "first\nsecond\nthird\n"})
equal(sandbox.process.execute(command="cat '/workspace/many/\"q\"'").stdout, "two")

# What is there.
listed = files.ls(path="/workspace").items
equal([entry.name for entry in listed], ["bytes", "many", "notes"])
equal([entry.is_dir for entry in listed], [False, True, True])
equal((listed[0].size, listed[0].mode, listed[0].owner), (len(every_byte), "600", "user"))
deep = files.ls(path="/workspace", recursive=True, exclude=["many"]).items
equal([entry.path for entry in deep], ["/workspace/bytes", "/workspace/notes", "/workspace/notes/one.txt"])
seen = files.stat(path="/workspace/notes/one.txt")
equal((seen.name, seen.is_dir, seen.size), ("one.txt", False, 19))
equal((files.exists(path="/workspace/notes"), files.exists(path="/workspace/nothing")), (True, False))
tree = files.tree(path="/workspace/notes")
equal([(node.name, node.type) for node in tree.items], [("one.txt", "file")])

# Changes.
files.mkdir(path="/workspace/deep/er", recursive=True, permissions="700")
equal(files.stat(path="/workspace/deep/er").mode, "700")
refused(leap0.Leap0ConflictError, "exists", lambda: files.mkdir(path="/workspace/deep"))
refused(leap0.Leap0NotFoundError, "", lambda: files.mkdir(path="/workspace/no/parent"))
files.set_permissions(path="/workspace/bytes", mode="644")
equal(files.stat(path="/workspace/bytes").mode, "644")
files.set_permissions(path="/workspace/bytes", owner="root", group="root")
equal(files.stat(path="/workspace/bytes").owner, "root")
files.copy(src_path="/workspace/notes", dst_path="/workspace/copy", recursive=True)
equal(files.read_file(path="/workspace/copy/one.txt"), "first\nsecond\nthird\n")
refused(leap0.Leap0ConflictError, "exists",
        lambda: files.copy(src_path="/workspace/bytes", dst_path="/workspace/copy/one.txt"))
files.move(src_path="/workspace/copy/one.txt", dst_path="/workspace/moved.txt")
equal(files.exists(path="/workspace/copy/one.txt"), False)
refused(leap0.Leap0ConflictError, "exists",
        lambda: files.move(src_path="/workspace/moved.txt", dst_path="/workspace/notes/one.txt"))
edited = files.edit_file(path="/workspace/moved.txt", edits=[leap0.FileEdit(find="second", replace="2nd")])
equal(edited.replacements, 1)
assert "-second\n+2nd\n" in edited.diff, edited.diff
several = files.edit_files(paths=["/workspace/moved.txt", "/workspace/nothing"], find="2nd", replace="zwei")
equal([item.success for item in several], [True, False])
equal(files.read_file(path="/workspace/moved.txt"), "first\nzwei\nthird\n")

# Searches.
equal(files.glob(path="/workspace", pattern="**/*.txt"), ["/workspace/moved.txt", "/workspace/notes/one.txt"])
found = files.grep(path="/workspace", pattern="sec.nd", include="*.txt")
equal([(match.path, match.line, match.content) for match in found], [("/workspace/notes/one.txt", 2, "second")])

# Refusals.
refused(leap0.Leap0NotFoundError, "nothing", lambda: files.read_file(path="/workspace/nothing"))
refused(leap0.Leap0Error, "is a directory", lambda: files.read_file(path="/workspace"))
refused(leap0.Leap0ConflictError, "not empty", lambda: files.delete(path="/workspace/notes"))
refused(leap0.Leap0PermissionError, "", lambda: files.delete(path="/etc/passwd"))
sandbox.process.execute(command="ln -s /etc/passwd /workspace/link")
link = files.stat(path="/workspace/link")
equal((link.is_symlink, link.link_target), (True, "/etc/passwd"))
files.delete(path="/workspace/link")
equal(files.exists(path="/etc/passwd"), True)
files.delete(path="/workspace/notes", recursive=True)
equal(files.exists(path="/workspace/notes"), False)

# Paused, and captured where this host can.
sandbox.process.execute(command="echo first > /workspace/mark")
equal(sandbox.pause().state.value, "paused")
equal(client.sandboxes.get(sandbox.id).state.value, "paused")
equal(sandbox.process.execute(command="cat /workspace/mark").stdout, "first\n")
if "snapshots" in sys.argv:
    taken = sandbox.create_snapshot(name="first")
    equal((taken.name, taken.vcpu, taken.memory), ("first", 1, 512))
    refused(leap0.Leap0ConflictError, "already", lambda: sandbox.create_snapshot(name="first"))
    sandbox.process.execute(command="echo second > /workspace/mark")
    page = client.snapshots.list()
    equal(([item.id for item in page.items], page.total_items), ([taken.id], 1))
    copy = client.snapshots.restore(snapshot_name="first", timeout=60)
    equal((copy.state.value, copy.timeout), ("running", 60))
    equal(copy.process.execute(command="cat /workspace/mark").stdout, "first\n")
    refused(leap0.Leap0ConflictError, copy.id, lambda: client.snapshots.delete(taken))
    copy.delete()
    client.snapshots.delete(taken)
    refused(leap0.Leap0NotFoundError, "first", lambda: client.snapshots.restore(snapshot_name="first"))
    equal(sandbox.process.execute(command="cat /workspace/mark").stdout, "second\n")

# The rest of its life.
equal((sandbox.get_user_home_dir(), sandbox.get_workdir()), ("/home/user", "/workspace"))
page = client.sandboxes.list(state="running")
equal([item.id for item in page.items if item.id == sandbox.id], [sandbox.id])
equal(client.sandboxes.get(sandbox.id).state.value, "running")
sandbox.delete()
refused(leap0.Leap0NotFoundError, sandbox.id, lambda: client.sandboxes.get(sandbox.id))
refused(leap0.Leap0NotFoundError, sandbox.id, lambda: sandbox.process.execute(command="true"))
refused(leap0.Leap0NotFoundError, "template", lambda: client.sandboxes.create(template_name="system/no-such"))
refused(leap0.Leap0Error, "API key is not known",
        lambda: Leap0Client(api_key="wrong-wrong-wrong").sandboxes.list())
print(f"{checks} checks held")
