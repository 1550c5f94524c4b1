"""Dumps a running sandbox with CRIU, sees all of it vanish, and restores it.

usage: cycle.py CRIU PID    (PID: the sandbox's process 1)

The sandbox's file systems are kept in this process's hands in between: how they are mounted
anew is the engine's affair. CRIU dumps as the sandbox's base id with root's capabilities:
the owner of a user namespace may do everything in it, and root without CAP_SYS_RESOURCE (as
in some virtual machines) may not. It restores as root, which alone may write what it must
under /proc/sys.

Prints the id of the restored process 1, and ends it when standard input is closed. Exits with
1 and CRIU's own words when it fails.
"""

import ctypes
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
OPEN_TREE, MOVE_MOUNT = 428, 429
CLONE_TREE, EMPTY_FROM, AT_CURRENT = 1, 4, -100
NEW_MOUNTS, NEW_USERS = 0x20000, 0x10000000
# What lies on file systems that CRIU cannot make again, by its place in the sandbox.
OUTSIDE = {"usr": "/usr", "dev": "/dev", "soma": "/run/soma"}


def cgroups(pid):
    """The sandbox's cgroups, which CRIU would mount as the host's. They go with its processes:
    the engine makes them anew before it restores a sandbox, and here empty folders do."""
    lines = pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    places = [line.split()[4] for line in lines if " - cgroup" in line]
    return {f"cgroup{number}": place for number, place in enumerate(places)}


def check(result):
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def hold_file_systems(pid):
    """Second views of the sandbox's mounts, attached nowhere."""
    allow_mounts(pid)
    here = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    there = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    check(LIBC.setns(there, NEW_MOUNTS))
    places = {"root": "/", **OUTSIDE}
    held = {
        name: check(LIBC.syscall(OPEN_TREE, AT_CURRENT, path.encode(), CLONE_TREE))
        for name, path in places.items()
    }
    check(LIBC.setns(here, NEW_MOUNTS))
    return held


def allow_mounts(pid):
    """A mount that is attached nowhere counts as a namespace, of which a sandbox may have none."""
    child = os.fork()
    if child == 0:
        check(LIBC.setns(os.open(f"/proc/{pid}/ns/user", os.O_RDONLY), NEW_USERS))
        pathlib.Path("/proc/sys/user/max_mnt_namespaces").write_text("64")
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("the sandbox's allowance of mounts could not be raised")


def attach(held, folder):
    for name, descriptor in held.items():
        path = folder / name
        path.mkdir()
        check(LIBC.syscall(MOVE_MOUNT, descriptor, b"", AT_CURRENT, str(path).encode(), EMPTY_FROM))


def criu(become, arguments, images):
    command = [*become, *shlex.split(sys.argv[1]), *arguments, "-D", str(images), "-v4"]
    command += ["-o", "log", "--manage-cgroups=ignore", "--empty-ns", "net"]
    command += ["--network-lock", "skip", "--tcp-established", "--file-locks"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        log = images / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        errors = [line for line in lines if "Error" in line]
        sys.exit("\n".join([f"criu {arguments[0]} failed", done.stdout, done.stderr, *errors]))


def base_with_capabilities(base):
    every = "+all" if has_every_capability() else "+all,-sys_resource"
    ids = [f"--reuid={base}", f"--regid={base}", "--clear-groups"]
    return ["setpriv", *ids, f"--inh-caps={every}", f"--ambient-caps={every}"]


def has_every_capability():
    last = int(pathlib.Path("/proc/sys/kernel/cap_last_cap").read_text())
    status = pathlib.Path("/proc/self/status").read_text()
    effective = next(line for line in status.splitlines() if line.startswith("CapEff"))
    return int(effective.split()[1], 16) == (1 << (last + 1)) - 1


def main():
    pid = int(sys.argv[2])
    base = int(pathlib.Path(f"/proc/{pid}/uid_map").read_text().split()[1])
    processes = descendants(pid)
    made_anew = cgroups(pid)
    places = OUTSIDE | made_anew
    held = hold_file_systems(pid)
    # From here on mounts are this process's own, and gone when it ends.
    check(LIBC.unshare(NEW_MOUNTS))
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    # CRIU remembers what the kernel can do only where /run is a tmpfs.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=777", "none", "/run"], check=True)
    work = pathlib.Path("/run/cycle")
    work.mkdir(mode=0o711)
    images = work / "images"
    images.mkdir(mode=0o711)
    os.chown(images, base, base)

    external = [f"--external=mnt[{path}]:{name}" for name, path in places.items()]
    dump = ["dump", "--unprivileged", "-t", str(pid), "--ghost-limit", "64M", *external]
    criu(base_with_capabilities(base), dump, images)
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{process}") for process in processes):
        if time.monotonic() > deadline:
            sys.exit("processes of the dumped sandbox are still there")
        time.sleep(0.01)

    for image in images.iterdir():
        image.chmod(0o644)
    attach(held, work)
    for name in made_anew:
        (work / name).mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "none", str(work / name)], check=True)
    external = [f"--external=mnt[{name}]:{work / name}" for name in places]
    # The loopback must be up before sockets come back.
    hook = work / "hook"
    hook.write_text(
        "#!/bin/sh\n"
        '[ "$CRTOOLS_SCRIPT_ACTION" = setup-namespaces ] || exit 0\n'
        'exec nsenter -t "$CRTOOLS_INIT_PID" -n ip link set lo up\n'
    )
    hook.chmod(0o755)
    first = images / "pid"
    where = ["--root", str(work / "root"), "--pidfile", str(first), "--action-script", str(hook)]
    # As this process's own child: a sandbox ends with whoever is its parent.
    criu([], ["restore", "-d", "--restore-sibling", *where, *external], images)
    restored = int(first.read_text())
    print(restored, flush=True)
    sys.stdin.read()
    os.kill(restored, signal.SIGKILL)
    os.waitpid(restored, 0)


def descendants(pid):
    found = [pid]
    for process in found:
        children = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text()
        found += [int(child) for child in children.split()]
    return found


main()
