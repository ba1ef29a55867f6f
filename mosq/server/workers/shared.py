"""Open what the workers of a parent share: the listening sockets, and sockets and memory between the workers.

The parent opens all of it before the first fork and keeps it open, so it outlives each worker.
"""

import _socket
import os

from mosq.engine import bind_sockets, close_sockets, counts_bytes, sockets_of
from mosq.server.settings import engine_listeners, http_listeners
from mosq.server.workers.asking import asking_pair

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.config.model import Config
    from mosq.server.http.listeners import Bound


class Given:
    """The descriptors and secrets that all workers get from the parent."""

    def __init__(self, key: bytes, passages: list[int], news: list[int], counts_fd: int,    # parameters: of the parent
                 sockets: list[list[int]], askings: list[int], http: "list[Bound]", status_fd: int) -> None:
        self.key = key                  # names the worker of a client id
        self.passages = passages              # sockets to each worker, to pass connections on
        self.news = news                # an eventfd of each worker: there are new records in streams
        self.counts_fd = counts_fd      # memory for counts
        self.sockets = sockets          # for each listener: descriptors that listen
        self.askings = askings          # to each worker's control plane, for questions
        self.http = http                # the sockets of HTTP listeners
        self.status_fd = status_fd      # /proc/PARENT/status, which shows a SIGHUP that waits; -1: it cannot be read


class Shared:
    """The ends that the parent holds for its workers, and what each of them gets."""

    given: Given

    def __init__(self) -> None:
        self.sockets: list[list[_socket.socket]] = []
        self.http: list[Bound] = []         # the sockets of HTTP listeners, which worker 1 serves
        self.receiving: list[int] = []      # for each worker: the half of its passage from which it receives
        self.questions: list[int] = []      # for each worker: the end for questions from which it receives

    def listen(self, config: "Config") -> None:
        """Open the listening sockets. Raises OSError."""
        for listener in http_listeners(config):     # first, as with one process: a client of MQTT finds them open
            from mosq.server.http.listeners import Bound, address_of_http

            address = address_of_http(listener)
            self.http.append(Bound(address, bind_sockets(*address), holders=1))
        for spec in engine_listeners(config):
            self.sockets.append(sockets_of(spec, config.set_tcp_nodelay))

    def connect(self, key: bytes, count: int) -> None:
        """Make what connects the workers. `key` names the worker of a client id. Raises OSError."""
        passages, news, askings = [], [], []
        for _ in range(count):
            question, asked = asking_pair()
            askings.append(question)
            self.questions.append(asked)
            one, other = _passage()
            passages.append(one.detach())
            self.receiving.append(other.detach())
            news.append(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
        counts_fd = os.memfd_create("mosq-counts", os.MFD_CLOEXEC)
        os.ftruncate(counts_fd, counts_bytes())
        try:
            status_fd = os.open(f"/proc/{os.getpid()}/status", os.O_RDONLY)
        except OSError:
            status_fd = -1              # then a client may meet the old rules until this process has noticed SIGHUP
        sockets = [[one.fileno() for one in opened] for opened in self.sockets]
        self.given = Given(key, passages, news, counts_fd, sockets, askings, self.http, status_fd)

    def repair_passage(self, place: int) -> bool:
        """Replace the passage of a worker that has not started, if it was shut down: the worker would end again. Return
        whether it was replaced; then the other workers need the new end, `given.passages[place]`."""
        receiving = _socket.socket(fileno=os.dup(self.receiving[place]))
        try:
            if receiving.recv(1, _socket.MSG_PEEK | _socket.MSG_DONTWAIT):
                return False
        except BlockingIOError:
            return False
        except OSError:
            pass
        finally:
            receiving.close()
        one, other = _passage()
        os.dup2(one.fileno(), self.given.passages[place], inheritable=False)
        os.dup2(other.fileno(), self.receiving[place], inheritable=False)
        one.close()
        other.close()
        return True

    def close(self) -> None:
        """Close the listening sockets."""
        for opened in (*self.sockets, *(one.sockets for one in self.http)):
            close_sockets(opened)


def _passage() -> tuple[_socket.socket, _socket.socket]:
    return _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
