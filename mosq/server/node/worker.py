"""A worker of a node: a worker as on one machine, with its store in Redis and with a lease."""

import os
import signal

from mosq.server.node.store import open_in_redis
from mosq.server.workers.worker import Given, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq._redis import LogFiles
    from mosq.config.model import Config
    from mosq.engine import Engine
    from mosq.server.node.store import StorePlace
    from mosq.server.node.wires import Wires
    from mosq.server.workers.channel import Channel


class NodeWorker(Worker):
    """One worker of a cluster, on this node."""

    _files: "LogFiles"

    def __init__(                       # parameters: of Worker, with the store
            self, place: int, channel: "Channel", given: "Given", receiving: int, asked: int, covered: int,
            store: "StorePlace", wires: "Wires | None", token: int) -> None:
        n = len(given.news)
        if wires is not None:           # all other workers are reached over the network
            news = [fd if other == place else -1 for other, fd in enumerate(given.news)]
            given = Given(given.key, [-1] * n, news, given.counts_fd, given.sockets, given.askings, given.http,
                          given.status_fd)
        super().__init__(place, channel, given, receiving, asked, covered)
        self._store, self._wires, self._token, self._n = store, wires, token, n

    def open_store(self, engine: "Engine", config: "Config", report: "Callable[[int, str], None]") -> bool:
        """Open the store in Redis, and the port for other workers. Raises OSError."""
        if self._wires is not None:
            self.wired = self._wires.wired(config.worker - 1, self._token, self._n)
        self._files = self._store.take(config.worker, self._token)
        open_in_redis(engine, config, self._store.name_of(config.worker), self._files, report)
        return True

    def alive(self) -> None:
        """Report that the loop works. A worker that has lost its store ends: the agent starts it again, and the engine
        has logged why."""
        if self._files.ended:
            os.kill(os.getpid(), signal.SIGKILL)
        super().alive()
