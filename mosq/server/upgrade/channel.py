"""The messages between the old and the new process of an upgrade: JSON objects with descriptors, over a socket of
sequenced packets.

    hello >   < state, listener ..., connections ..., end   ready > (or error >)   < go
"""

import _socket
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FD_VARIABLE = "MOSQ_UPGRADE_FD"     # environment of the new process: the descriptor of its end
PROTOCOL = 1                    # number of these messages
LIMIT_S = 10.0                  # from the start of the new program to `ready`
MESSAGE_BYTES = 65536
FDS_MAX = 253                   # limit of the system for a message


def send(channel: "_socket.socket", message: "dict[str, Any]", fds: "list[int] | tuple[()]" = ()) -> None:
    """Send a message with descriptors. Raises OSError."""
    data = json.dumps(message).encode()
    if fds:
        import array

        packed = array.array("i", fds).tobytes()
        channel.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)])
    else:
        channel.sendmsg([data])


def receive(channel: "_socket.socket") -> "tuple[dict[str, Any], list[int]]":
    """Receive a message with its descriptors. Raises OSError, EOFError if the other process is gone, ValueError for a
    message that is none."""
    import array

    room = _socket.CMSG_SPACE(FDS_MAX * 4)
    data, ancillary, flags, _ = channel.recvmsg(MESSAGE_BYTES, room, _socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, packed in ancillary:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            fds.frombytes(packed[:len(packed) - len(packed) % fds.itemsize])
    if not data:
        raise EOFError
    message = None if flags & (_socket.MSG_TRUNC | _socket.MSG_CTRUNC) else json.loads(data)
    if not isinstance(message, dict):
        for fd in fds:
            os.close(fd)
        raise ValueError("a message is cut, or is no object")
    return message, fds.tolist()
