"""Starts a program with a filter that refuses a system call.

    refuse.py CALL ERROR MASK PROGRAM [ARGUMENT...]

The call is refused with the error; where MASK is not 0, only when its first argument has one of
those bits. Everything else is allowed. This is what a container's profile does.
"""

import ctypes
import os
import struct
import sys

LOAD, EQUALS, HAS_BITS, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NUMBER, FIRST_ARGUMENT = 0, 16
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2

call, error, mask = (int(word) for word in sys.argv[1:4])
steps = [(LOAD, 0, 0, NUMBER)]
if mask:
    steps += [
        (EQUALS, 0, 3, call),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (HAS_BITS, 0, 1, mask),
    ]
else:
    steps += [(EQUALS, 0, 1, call)]
steps += [(RETURN, 0, 0, REFUSE | error), (RETURN, 0, 0, ALLOW)]

code = b"".join(struct.pack("HBBI", *step) for step in steps)
held = ctypes.create_string_buffer(code)


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


program = Program(len(steps), ctypes.cast(held, ctypes.c_void_p))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
    PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)
):
    sys.exit(f"refuse.py: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[4], sys.argv[4:])
