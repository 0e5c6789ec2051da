"""A seccomp filter around cloche, as an outer container or an old kernel would have it."""
import ctypes
import os
import struct

EPERM, ENOSYS, KILL = 0x00050001, 0x00050026, 0x80000000


def filter_calls(numbers, action):
    """In a child before exec: these calls get `action`, all others pass."""
    def stmt(code, jt, jf, k):
        return struct.pack("HBBI", code, jt, jf, k)

    prog = stmt(0x20, 0, 0, 0)
    for n in numbers:
        prog += stmt(0x15, 0, 1, n) + stmt(0x06, 0, 0, action)
    prog += stmt(0x06, 0, 0, 0x7FFF0000)
    buf = ctypes.create_string_buffer(prog, len(prog))
    libc = ctypes.CDLL(None, use_errno=True)

    def apply():
        fprog = struct.pack("HxxxxxxQ", len(prog) // 8, ctypes.addressof(buf))
        if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, ctypes.c_char_p(fprog)) != 0:
            os._exit(99)

    return apply
