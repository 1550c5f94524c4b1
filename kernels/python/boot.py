"""What the interpreter executes first: it finds the other parts and starts the nursery.

The program arrives on descriptor 0 as one file:

    the text of boot.py, which ends in a newline, then for each other *.py of
    this folder, in any order, one line and the part itself:
        "#~ NAME LENGTH\\n", where NAME is the file's name without ".py" and
        LENGTH its size in bytes; then exactly LENGTH bytes, each part ending
        in a newline.

No line of boot.py itself begins with these two signs, so that the first
"\\n#~ " is where it ends. Only boot.py is compiled at the start; a part is
compiled when it is first asked for, because compiling all would cost more
than starting the interpreter. The interpreter is started with

    python3 -c 'import os;b=os.pread(0,1<<24,0);exec(compile(b[:b.index(b"\\n#~ ")+1],"<soma>","exec"),{"b":b,"__name__":"soma"})'

Parts are modules that nobody else can import; code objects of ours have names
that begin with "<soma", by which tracebacks leave them out.
"""
import sys

Module = type(sys)
parts = {}
places = {}


def part(name):
    """The part of this name, compiled and executed at its first use."""
    module = parts.get(name)
    if module is None:
        start, end = places[name]
        module = Module("soma." + name)
        module.part = part
        parts[name] = module
        exec(compile(b[start:end], "<soma " + name + ">", "exec"), module.__dict__)
    return module


def index():
    """Where each part is in the program."""
    at = b.index(b"\n#~ ") + 1
    while at < len(b):
        end = b.index(b"\n", at)
        _, name, size = b[at:end].split()
        at = end + 1 + int(size)
        places[name.decode()] = (end + 1, at)


index()
main = sys.modules["__main__"].__dict__
for _name in ("os", "b"):
    main.pop(_name, None)
part("nursery").main()
