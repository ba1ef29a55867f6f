"""A reload while no worker serves clients: a process checks the new configuration as a worker does, and ends. Without
it, the parent would take a configuration with which no worker can start.

The parent sees the process as a worker of the round, which sends `checked` and ends. It serves no client.
"""

import select
import signal

from mosq.engine import new_engine
from mosq.server import process, signals
from mosq.server.control import EXIT_OK, Control
from mosq.server.workers.slot import Slot
from mosq.server.workers.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.config.model import Config
    from mosq.log.log import Log
    from mosq.server.http.listeners import Bound
    from mosq.server.process import Account
    from mosq.server.workers.channel import Channel

PLACE = -1                      # of no worker


class TrialSlot(Slot):
    """The process, as the parent sees it."""

    def __init__(self) -> None:
        super().__init__(PLACE)

    @property
    def name(self) -> str:
        """The name in log lines."""
        return "The check"

    def end(self) -> None:
        """End the process, and wait for that."""
        self.kill(signal.SIGKILL)
        while self.pid and self.reap() is None:
            select.select([], [], [], 0.001)


class _NoEngine:
    """The engine of a process that serves no client: it can only be prepared."""

    def begin_reload(self, reloads: int) -> None:
        """Hold no client."""

    def prepare_reload(self, *arguments: "Any") -> object:
        """Make an engine with the new configuration. Raises ValueError, OSError and MemoryError."""
        return new_engine(*arguments)


class Trial(Worker):
    """The process itself. It has no part in what the workers share."""

    def __init__(self, channel: "Channel", http: "list[Bound]") -> None:
        self.channel, self.http = channel, http
        self._prepared = None
        self._content = self._state = ""

    def run(self, config: "Config", user: "Account | None", log: "Log", load: "Callable[[], Config]",
            before: "set[int]") -> int:
        """Check what `load` returns when the parent asks for it; return the exit status when the parent is gone."""
        def same() -> "Config":
            read = load()
            self.compare(read)
            read.cluster_local = config.cluster_local
            return read

        if user is not None:
            process.become(user)        # a worker that reloads has no more rights
        with signals.Signals() as taken:
            signal.signal(signals.RELOAD, signal.SIG_IGN)
            signals.unblock(before - {signals.RELOAD})
            control = Control(config, taken, False, False, same, self)
            control.user, control.log = user, log
            control.engine = _NoEngine()    # type: ignore[assignment]
            taken.defer()
            while not self.channel.closed:
                select.select([self.channel.fileno()], [], [])
                for message, _ in self.channel.receive():
                    if message["do"] == "check":
                        self._check(control, message)
        return EXIT_OK
