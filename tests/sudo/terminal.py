"""Runs in the sandbox: uses `sudo` in a terminal, as a person would.

Each check prints its name when it did not hold.
"""

import fcntl
import glob
import os
import pty
import re
import select
import struct
import sys
import termios
import time


class Terminal:
    """A terminal with a program in it."""

    def __init__(self, *command, rows=24, columns=80):
        self.seen = b""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execvp(command[0], command)

    def type(self, text):
        os.write(self.master, text.encode())

    def wait_for(self, pattern, seconds=20):
        """Reads until the pattern was seen, and forgets what came before its end."""
        end = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.seen)
            if found:
                self.seen = self.seen[found.end():]
                return found
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                raise AssertionError(f"{pattern} was not seen in {self.seen}")
            try:
                data = os.read(self.master, 65536)
            except OSError:
                data = b""
            if not data:
                raise AssertionError(f"it ended before {pattern} in {self.seen}")
            self.seen += data

    def echoes(self):
        return bool(termios.tcgetattr(self.master)[3] & termios.ECHO)

    def end(self):
        """Reads the rest and returns how it ended."""
        while True:
            if not select.select([self.master], [], [], 20)[0]:
                raise AssertionError(f"it does not end: {self.seen}")
            try:
                data = os.read(self.master, 65536)
            except OSError:
                data = b""
            if not data:
                break
            self.seen += data
        status = os.waitpid(self.pid, 0)[1]
        os.close(self.master)
        return os.waitstatus_to_exitcode(status)


def check(name, held):
    if not held:
        print(name)


def a_program_sees_a_terminal_of_its_own_and_its_size():
    script = "test -t 0 && test -t 1 && test -t 2 && stty size </dev/tty; exit 3"
    terminal = Terminal("sudo", "sh", "-c", script, rows=33, columns=111)
    terminal.wait_for(rb"33 111\r\n")
    check("its code is passed on", terminal.end() == 3)


def what_is_typed_arrives_and_is_shown_once():
    terminal = Terminal("sudo", "cat")
    while terminal.echoes():
        time.sleep(0.01)
    terminal.type("hello\r")
    terminal.wait_for(rb"hello\r\nhello\r\n")
    terminal.type("\x04")
    code = terminal.end()
    check("the end of input is passed on", code == 0)
    check("nothing is shown twice", b"hello" not in terminal.seen)


def control_c_ends_the_program_and_the_terminal_is_as_before():
    terminal = Terminal("sh", "-c", "trap : INT; sudo sleep 100; echo code $?; stty -a; read x")
    wait_for_process("sleep", "100")
    while terminal.echoes():
        time.sleep(0.01)
    terminal.type("\x03")
    terminal.wait_for(rb"code 130\r\n")
    terminal.wait_for(rb" icanon ")
    check("the terminal echoes again", terminal.echoes())
    terminal.type("\r")
    terminal.end()


def control_z_stops_it_and_it_goes_on():
    terminal = Terminal("bash", "--norc", "-i")
    terminal.type("PS1='ready> '\r")
    terminal.wait_for(rb"ready> $")
    terminal.type("sudo sh -c 'echo begun; read x; echo got $x'\r")
    terminal.wait_for(rb"\nbegun\r\n")
    terminal.type("\x1a")
    terminal.wait_for(rb"Stopped")
    terminal.wait_for(rb"ready> $")
    terminal.type("echo shell $((1+1))\r")
    terminal.wait_for(rb"\nshell 2\r\n")
    terminal.type("fg\r")
    terminal.wait_for(rb"sudo sh -c")
    terminal.type("word\r")
    terminal.wait_for(rb"\ngot word\r\n")
    terminal.wait_for(rb"ready> $")
    terminal.type("exit 5\r")
    check("the shell goes on as before", terminal.end() == 5)


def a_new_size_is_passed_on():
    terminal = Terminal("sudo", "bash", "-c", "trap 'stty size; exit 6' WINCH; echo begun; while :; do sleep 0.05; done")
    terminal.wait_for(rb"begun\r\n")
    fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 132, 0, 0))
    terminal.wait_for(rb"50 132\r\n")
    check("it ends by itself", terminal.end() == 6)


def wait_for_front(*words):
    """Waits until a process runs and its terminal's keys are for it: before, they are its shell's."""
    line = "\0".join(words).encode() + b"\0"
    deadline = time.time() + 20
    while time.time() < deadline:
        for folder in glob.glob("/proc/[0-9]*"):
            try:
                with open(folder + "/cmdline", "rb") as file:
                    if file.read() != line:
                        continue
                with open(folder + "/stat") as file:
                    state, _, group, _, _, front = file.read().rsplit(")", 1)[1].split()[:6]
            except OSError:
                continue
            if state != "T" and group == front:
                return
        time.sleep(0.01)
    raise AssertionError(f"{words} does not come to the front")


def a_root_shell_works_in_it_with_jobs():
    terminal = Terminal("sudo", "bash", "--norc", "-i")
    terminal.type("PS1='root> '; id -u\r")
    terminal.wait_for(rb"\n0\r\n")
    terminal.type("sleep 77\r")
    wait_for_process("sleep", "77")
    terminal.type("\x1a")
    terminal.wait_for(rb"Stopped")
    terminal.wait_for(rb"root> $")
    terminal.type("fg\r")
    terminal.wait_for(rb"sleep 77\r\n")
    wait_for_front("sleep", "77")
    terminal.type("\x03")
    terminal.wait_for(rb"root> $")
    terminal.type("exit 4\r")
    check("the root shell's code is passed on", terminal.end() == 4)


def pipes_stay_pipes_in_a_terminal():
    terminal = Terminal("sh", "-c", "echo piped | sudo sh -c 'test ! -t 0 && test -t 1 && cat'; sudo id -u | cat")
    terminal.wait_for(rb"piped\r\n")
    terminal.wait_for(rb"0\r\n")
    check("both end well", terminal.end() == 0)


def large_output_arrives_whole():
    terminal = Terminal("sudo", "sh", "-c", "yes 0123456789 | head -n 40000; echo the end")
    terminal.wait_for(rb"the end\r\n", seconds=60)
    check("it ends well", terminal.end() == 0)


def a_terminal_that_is_gone_ends_the_program():
    terminal = Terminal("sudo", "sleep", "1234")
    wait_for_process("sleep", "1234")
    os.close(terminal.master)
    os.waitpid(terminal.pid, 0)
    wait_for_process("sleep", "1234", there=False)


def wait_for_process(*command, there=True):
    end = time.monotonic() + 20
    wanted = "\0".join(command).encode() + b"\0"
    while time.monotonic() < end:
        found = False
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                found |= open(f"/proc/{pid}/cmdline", "rb").read() == wanted
            except OSError:
                pass
        if found == there:
            return
        time.sleep(0.01)
    raise AssertionError(f"{command} is {'not ' if there else ''}there")


for act in [
    a_program_sees_a_terminal_of_its_own_and_its_size,
    what_is_typed_arrives_and_is_shown_once,
    control_c_ends_the_program_and_the_terminal_is_as_before,
    control_z_stops_it_and_it_goes_on,
    a_new_size_is_passed_on,
    a_root_shell_works_in_it_with_jobs,
    pipes_stay_pipes_in_a_terminal,
    large_output_arrives_whole,
    a_terminal_that_is_gone_ends_the_program,
]:
    try:
        act()
    except Exception as error:
        print(act.__name__, repr(error))
    sys.stdout.flush()
print("done")
