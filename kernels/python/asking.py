"""`input()` and `getpass`: asked through the guest where somebody answers, else an error that says so."""
import builtins
import io
import sys
import _thread

wire = part("wire")
streams = part("streams")

allowed = False
# True while a cell waits for an answer: only then may an interrupt come in our own code.
waiting = False
turn = _thread.allocate_lock()


class StdinNotImplementedError(NotImplementedError, EOFError):
    """Nobody can answer."""

    # Shown by its bare name, as the one that notebooks know.
    __module__ = "builtins"


def install():
    """Puts them in place of the interpreter's."""
    builtins.input = input
    sys.stdin = sys.__stdin__ = Stdin()
    if "getpass" in sys.modules:
        patch_getpass(sys.modules["getpass"])


def input(prompt="", /):
    """Asks for a line; the prompt goes with the question."""
    return ask(str(prompt), False)


def getpass(prompt="Password: ", stream=None, **_others):
    """Asks for a line that is not shown."""
    return ask(str(prompt), True)


def patch_getpass(module):
    """Makes the module ask through the guest."""
    module.getpass = module.unix_getpass = module.fallback_getpass = getpass


def ask(prompt, password):
    """The answer, or an error."""
    global waiting
    if not allowed or wire.alone:
        raise StdinNotImplementedError(
            "nobody can answer input() in this execution: give the value in the code, "
            "or execute it with input allowed"
        )
    with turn:
        part("kernel").tell(b"input", {"prompt": prompt, "password": password})
        waiting = True
        try:
            frame = wire.receive()
        finally:
            waiting = False
    if frame is None:
        raise EOFError("there is nobody any more who could answer")
    words, body = frame
    text = body.decode("utf-8", "replace")
    if words[0] == b"input":
        return text
    raise StdinNotImplementedError(text or "nobody answered input()")


class Stdin(io.TextIOBase):
    """Standard input: lines are asked for where somebody answers, otherwise it is at its end."""

    encoding = "utf-8"
    errors = "replace"
    name = "<stdin>"
    mode = "r"

    @property
    def buffer(self):
        return io.BufferedReader(io.FileIO(0, closefd=False))

    def readable(self):
        return True

    def fileno(self):
        return 0

    def isatty(self):
        return False

    def readline(self, size=-1):
        if not allowed or wire.alone:
            return ""
        try:
            line = ask("", False) + "\n"
        except EOFError:
            return ""
        return line if size is None or size < 0 else line[:size]

    def read(self, size=-1):
        return ""

    def close(self):
        """Stays open: `exit()` closes it, and ends nothing here."""
