"""A worker of a cluster: it reaches the other workers over the network (mosq/cluster/reach.py). This module connects
that thread with the worker: its log lines, and the messages of the parent about places."""

import os
import signal
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any

    from mosq.cluster.reach import Reach
    from mosq.cluster.wires import Own
    from mosq.engine import Engine

LINES_MAX = 1000


class Wired:
    """The connections of one worker to the others. `own`: its identity; `listening`: its socket for the others, which
    belongs to this object; `n`: the number of workers of the cluster. `asker`: asks the other workers."""

    def __init__(self, own: "Own", listening: "socket.socket", n: int) -> None:
        from mosq.cluster.questions.asker import Asker

        self._own, self._listening = own, listening
        self.asker = Asker(own.slot, n)
        self._lines: deque[tuple[int, str]] = deque(maxlen=LINES_MAX)
        self._reach: Reach | None = None
        self._early: dict[int, Any] = {}        # places that came before the engine ran

    def begin(self, engine: "Engine", wake: "Callable[[], None]") -> None:
        """Dial and accept from now on. The engine runs. `wake` wakes the control thread."""
        from mosq.cluster.reach import Reach

        def report(kind: int, text: str) -> None:
            self._lines.append((kind, text))
            wake()

        def stop() -> None:
            os.kill(os.getpid(), signal.SIGTERM)        # the parent starts the next process

        self._reach = Reach(engine, self._own, self._listening, self.asker, report, stop)
        self._reach.start()
        self._reach.places(self._early)

    def places(self, places: "dict[str, list[Any] | None]") -> None:
        """Take where workers are: for each slot host, port and token; None: its process has ended for sure."""
        from mosq.cluster.reach import Place

        made = {int(slot): None if one is None else Place(*one) for slot, one in places.items()}
        if self._reach is None:
            self._early.update(made)
        else:
            self._reach.places(made)

    def log(self, report: "Callable[[int, str], None]") -> None:
        """Log the lines that wait. For the control thread."""
        while self._lines:
            report(*self._lines.popleft())
