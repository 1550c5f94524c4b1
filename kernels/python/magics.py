"""The few commands of IPython's that people type without thinking, where IPython is not there."""
import os
import re
import subprocess
import sys
import time

main = sys.modules["__main__"]
LINE = re.compile(r"^(\s*)(?:(\w+)\s*=\s*)?([!%])(?![=%])(.*)$")


class UsageError(Exception):
    """A command that is only there with IPython."""

    __module__ = "builtins"


def translate(text):
    """The cell with its commands as calls, or nothing where it has none."""
    main.__dict__["__soma__"] = Commands
    if text.lstrip().startswith("%%"):
        first, _, rest = text.lstrip().partition("\n")
        name, _, _line = first[2:].partition(" ")
        return "__soma__.cell(%r, %r)" % (name, rest)
    found = False
    lines = []
    for line in text.split("\n"):
        match = LINE.match(line)
        if match:
            found = True
            space, target, sign, rest = match.groups()
            call = "capture" if target and sign == "!" else "system" if sign == "!" else "magic"
            line = "%s%s__soma__.%s(%r)" % (space, target + " = " if target else "", call, rest)
        lines.append(line)
    return "\n".join(lines) if found else None


class Commands:
    """What the calls do."""

    @staticmethod
    def system(command):
        """Runs a command; its output goes where a child's goes."""
        part("streams").flush()
        main.__dict__["_exit_code"] = wait(subprocess.Popen(command, shell=True))

    @staticmethod
    def capture(command):
        """Runs a command and returns its lines."""
        done = subprocess.run(command, shell=True, stdout=subprocess.PIPE)
        return done.stdout.decode("utf-8", "replace").splitlines()

    @staticmethod
    def magic(line):
        """The commands of one line."""
        name, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if name == "cd":
            os.chdir(os.path.expanduser(rest or "~"))
            return os.getcwd()
        if name == "pwd":
            return os.getcwd()
        if name == "pip":
            import shlex

            part("streams").flush()
            command = [sys.executable, "-m", "pip"] + shlex.split(rest)
            main.__dict__["_exit_code"] = wait(subprocess.Popen(command))
            return None
        if name in ("env", "set_env"):
            return environment(rest)
        if name == "time":
            return timed(rest)
        if name in ("matplotlib", "config", "autoreload", "load_ext"):
            return None
        raise missing("%" + name)

    @staticmethod
    def cell(name, rest):
        """The commands of a whole cell."""
        if name in ("bash", "sh"):
            part("streams").flush()
            status = wait(subprocess.Popen([name, "-c", rest]))
            if status:
                raise subprocess.CalledProcessError(status, name)
            return None
        if name == "time":
            return timed(rest)
        raise missing("%%" + name)


def wait(child):
    """The child's status; an interrupt reaches it by itself and is raised when it has ended."""
    try:
        return child.wait()
    except KeyboardInterrupt:
        try:
            child.wait(1)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise


def environment(rest):
    """Shows, reads or sets variables of the environment."""
    if not rest:
        return dict(os.environ)
    name, sign, value = rest.partition("=" if "=" in rest else " ")
    if not sign:
        return os.environ[name.strip()]
    os.environ[name.strip()] = value.strip()
    return None


def timed(text):
    """Runs code and tells how long it took."""
    start, spent = time.perf_counter(), time.process_time()
    value = part("plain").evaluate(text, "<timed>")
    spent, passed = time.process_time() - spent, time.perf_counter() - start
    print("CPU times: %.3f s\nWall time: %.3f s" % (spent, passed))
    return value


def missing(name):
    """The error for all others."""
    return UsageError(
        "%s needs IPython, which cannot be imported here: install ipython and restart the context"
        % name
    )
