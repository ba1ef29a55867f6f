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
PROTOCOL = 1                    # number of these messages
LIMIT_S = 10.0                  # from the start of the new program to `ready`
MESSAGE_BYTES = 65536
FDS_MAX = 253                   # limit of the system for a message
FD_BYTES = 4


def send(channel: "_socket.socket", message: "dict[str, Any]", fds: "list[int] | tuple[()]" = ()) -> None:
    """Send a message with descriptors. A line break in a value becomes a space. Raises OSError."""
    data = "\n".join(f"{name}={value}".replace("\n", " ") for name, value in message.items()).encode()
    if fds:
        packed = struct.pack(f"={len(fds)}i", *fds)
        channel.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)])
    else:
        channel.sendmsg([data])


def receive(channel: "_socket.socket") -> "tuple[dict[str, str], list[int]]":
    """Receive a message with its descriptors. Raises OSError, EOFError if the other process is gone, ValueError for a
    message that is none."""
    room = _socket.CMSG_SPACE(FDS_MAX * FD_BYTES)
    data, ancillary, flags, _ = channel.recvmsg(MESSAGE_BYTES, room, _socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, packed in ancillary:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            fds.extend(struct.unpack(f"={len(packed) // FD_BYTES}i", packed[:len(packed) // FD_BYTES * FD_BYTES]))
    if not data:
        raise EOFError
    try:
        if flags & (_socket.MSG_TRUNC | _socket.MSG_CTRUNC):
            raise ValueError("a message is cut")
        return dict(line.split("=", 1) for line in data.decode().split("\n")), fds
    except ValueError:
        for fd in fds:
            os.close(fd)
        raise
