"""Run a command where there is no network but a loopback interface of its own: ``python enclosed.py COMMAND...``.

Programs that look for their live network by themselves, as the nodes of other makers do, find nothing there. Linux
only; without root the command runs in a user namespace, too.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1
NO_WAY_IN = 77
"""The exit status when the system lets nobody enclose anything."""


def enclose():
    """Leave every network; raise OSError where that is not allowed."""
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NETWORK if user == 0 else _NEW_USER | _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "unshare")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        (flags,) = struct.unpack("16xh", fcntl.ioctl(any_socket, _GET_FLAGS, struct.pack("16sh", b"lo", 0)))
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh", b"lo", flags | _UP))


if __name__ == "__main__":
    try:
        enclose()
    except OSError as error:
        print(f"no network namespace: {error}", file=sys.stderr)  # noqa: T201 - a command's word
        sys.exit(NO_WAY_IN)
    os.execvp(sys.argv[1], sys.argv[1:])
