"""The messages between the parent and a worker: JSON objects with descriptors, over a socket of sequenced packets that
does not block.

    parent -> worker   check, then apply or drop (a reload); link PEER, with two descriptors; admit (the clients that
                       wait for bridges); those of order.py; of a cluster: places PLACES (where the other workers are),
                       move (stop, because another node starts this worker), cluster OVERVIEW (mosq/cluster/figures.py),
                       rules STAMP COUNT, with a descriptor (a document of dynamic security), answer NUMBER STATUS WHY
    worker -> parent   ready, or failed TEXT WRONG_CONFIG; alive; checked STATUS ERROR CHANGED (the answer to check);
                       reload (a user of the dashboard asks for it); those of together.py; changes MESSAGES COMMITS
                       (further ones); bridged (the first attempts of its bridges have ended); figures TEXT (of a worker
                       of a cluster, the same); of a cluster, failed also with STORE (it has lost its store in Redis),
                       look NUMBER, write NUMBER EXPECTED STAMP, with a descriptor, uses COUNT (documents.py)
"""

import _socket
import array
import fcntl
import json
import os
import sys
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]

MESSAGE_BYTES = 65536
FDS_MAX = 4
ERROR_CHARACTERS_MAX = 4000


class Channel:
    """One end. `closed`: the other process has ended, or cannot be reached."""

    def __init__(self, sock: "_socket.socket") -> None:
        self._sock, self.closed = sock, False
        sock.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor, for poll."""
        return self._sock.fileno()

    def send(self, message: "Message", fds: "list[int] | tuple[()]" = ()) -> None:
        """Send a message. A process that does not read its messages counts as gone."""
        data = json.dumps(message).encode()
        ancillary = []
        if fds:
            ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", fds).tobytes())]
        try:
            self._sock.sendmsg([data], ancillary)
        except OSError:
            self.closed = True

    def is_read(self) -> bool:
        """Return whether the other process has read all messages. One that is stopped has not."""
        return not int.from_bytes(fcntl.ioctl(self._sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"), sys.byteorder)

    def receive(self) -> "list[tuple[Message, list[int]]]":
        """Return the messages that have arrived, with their descriptors."""
        found = []
        while not self.closed:
            try:
                data, ancillary, _, _ = self._sock.recvmsg(MESSAGE_BYTES, _socket.CMSG_SPACE(4 * FDS_MAX),
                                                           _socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                break
            except OSError:
                data, ancillary = b"", []
            if not data:
                self.closed = True
                break
            found.append((json.loads(data), _descriptors(ancillary)))
        return found

    def close(self) -> None:
        """Close this end."""
        self.closed = True
        self._sock.close()


def channel_pair() -> tuple[Channel, Channel]:
    """Return both ends of a new channel. Raises OSError."""
    one, other = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    for sock in (one, other):
        os.set_inheritable(sock.fileno(), False)
    return Channel(one), Channel(other)


def _descriptors(ancillary: "list[tuple[int, int, bytes]]") -> list[int]:
    fds = array.array("i")
    for level, kind, packed in ancillary:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            fds.frombytes(packed[:len(packed) - len(packed) % fds.itemsize])
    return fds.tolist()
