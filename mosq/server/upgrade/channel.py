"""The messages between the old and the new process of an upgrade: lines NAME=VALUE with descriptors, over a socket of
sequenced packets.

    hello >   < state, listener ..., connections ..., end   ready > (or error >)   < go

JSON would cost each process the import of two modules, which is a megabyte at the time at which both are there.
"""

import _socket
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FD_VARIABLE = "MOSQ_UPGRADE_FD"     # environment of the new process: the descriptor of its end
STDERR_VARIABLE = "MOSQ_UPGRADE_STDERR"     # standard error of the old process; that of the new one is a file at first
REASON_NAME = "\0mosq-upgrade-{}"       # socket of `mosq upgrade`, which gets the reason of a failure of process {}
REASON_MAX = 4096
PROTOCOL = 1                    # number of these messages
LIMIT_S = 10.0                  # from the start of the new program to `ready`
MESSAGE_BYTES = 65536
FDS_MAX = 253                   # limit of the system for a message
FD_BYTES = 4
PEER_BYTES = 12                 # process, user and group


def packed(fds: list[int]) -> bytes:
    """Return descriptors as the system has them: FD_BYTES each. Thousands of them stay in this form, which is small."""
    return struct.pack(f"={len(fds)}i", *fds)


def unpacked(fds: bytes) -> list[int]:
    return list(struct.unpack(f"={len(fds) // FD_BYTES}i", fds))


def store_identity(path: str | None) -> str:
    """Return what identifies the folder of a store: "none" if there is no store, "" if there is no such folder."""
    if path is None:
        return "none"
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def peer_of(connection: "_socket.socket") -> tuple[int, int]:
    """Return the process and the user at the other end of a connected unix socket. Raises OSError."""
    pid, user, _ = struct.unpack("=3i", connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, PEER_BYTES))
    return pid, user


def printable(text: str) -> str:
    """Return the words of a text without control characters, on one line."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def send(channel: "_socket.socket", message: "dict[str, Any]", fds: bytes = b"") -> None:
    """Send a message with packed descriptors. A line break in a value becomes a space. Raises OSError."""
    data = "\n".join(f"{name}={value}".replace("\n", " ") for name, value in message.items()).encode()
    channel.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)] if fds else [])


def receive(channel: "_socket.socket") -> "tuple[dict[str, str], bytes]":
    """Receive a message with its packed descriptors. Raises OSError, EOFError if the other process is gone, ValueError
    for a message that is none."""
    room = _socket.CMSG_SPACE(FDS_MAX * FD_BYTES)
    data, ancillary, flags, _ = channel.recvmsg(MESSAGE_BYTES, room, _socket.MSG_CMSG_CLOEXEC)
    fds = b""
    for level, kind, content in ancillary:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            fds += content[:len(content) // FD_BYTES * FD_BYTES]
    if not data:
        raise EOFError
    try:
        if flags & (_socket.MSG_TRUNC | _socket.MSG_CTRUNC):
            raise ValueError("a message is cut")
        return dict(line.split("=", 1) for line in data.decode().split("\n")), fds
    except ValueError:
        for fd in unpacked(fds):
            os.close(fd)
        raise
