"""The listening sockets of a node, which refuse clients while no process here can accept them.

The parent opens the sockets once and keeps them, so each worker that starts here has them. The system completes a
connection whether or not a process accepts it: without this module a client, or the check of a load balancer, would
wait at a node that has lost its workers. `shutdown` ends the waiting connections and refuses new ones, and the socket
keeps its port; `listen` admits clients again. A unix socket cannot listen again after `shutdown`; its clients wait.
"""

import _socket

BACKLOG = 1024                  # as for every listener (cext/setup/listen.pyx)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Doors:
    """Sockets that are all open or all shut. At first they are open."""

    def __init__(self, sockets: "Iterable[_socket.socket]") -> None:
        self._sockets = [one for one in sockets if one.family != _socket.AF_UNIX]
        self.is_open = True

    def open(self) -> None:
        """Admit clients; they wait until a worker accepts them."""
        if not self.is_open:
            for one in self._sockets:
                one.listen(BACKLOG)
            self.is_open = True

    def shut(self) -> None:
        """Refuse clients."""
        if self.is_open:
            for one in self._sockets:
                one.shutdown(_socket.SHUT_RDWR)
            self.is_open = False
