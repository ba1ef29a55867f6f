"""A worker of a node: a worker as on one machine, with its store in Redis and with a lease."""

import os
import signal

from mosq.server.node.store import open_in_redis
from mosq.server.workers.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq._redis import LogFiles
    from mosq.config.model import Config
    from mosq.engine import Engine
    from mosq.server.node.store import StorePlace
    from mosq.server.workers.channel import Channel
    from mosq.server.workers.worker import Given


class NodeWorker(Worker):
    """One worker of a cluster, on this node."""

    _files: "LogFiles"

    def __init__(                       # parameters: of Worker, with the store
            self, place: int, channel: "Channel", given: "Given", receiving: int, asked: int, covered: int,
            store: "StorePlace", token: int) -> None:
        super().__init__(place, channel, given, receiving, asked, covered)
        self._store, self._token = store, token

    def open_store(self, engine: "Engine", config: "Config", report: "Callable[[int, str], None]") -> bool:
        """Open the store in Redis. Raises OSError."""
        self._files = self._store.take(config.worker, self._token)
        open_in_redis(engine, config, self._store.name_of(config.worker), self._files, report)
        return True

    def alive(self) -> None:
        """Report that the loop works. A worker that has lost its store ends: the agent starts it again, and the engine
        has logged why."""
        if self._files.ended:
            os.kill(os.getpid(), signal.SIGKILL)
        super().alive()
