"""The traces of one worker as notices between the control planes of all workers (mosq/server/admin/traces.py). Knows
places and notices, not events.

    begin: the worker of the reader asks the others to begin the trace      end: it ends the trace there
    news: a worker sends the events that it has for the trace of another one
    list: a worker asks the others for the traces of their readers

A notice waits here until the control thread takes it. A worker that is started again gets the traces of the others once
more; those of a worker that has ended are ended.
"""

import threading
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.cluster.questions.asker import Asker
    from mosq.server.workers.asking import Asking

BEGUN_WITHIN_S = 0.8            # the answer to a question is waited for no longer than a second
AGAIN_S = 0.05                  # until events are sent again to a worker that did not read
TRACES = frozenset(("trace_begin", "trace_end", "trace_list", "trace_news"))
NOTICES_MAX = 256               # that wait for the control thread; further news are refused, and their events are lost
ENDS_MAX = 4 * NOTICES_MAX      # further ends of traces are forgotten: only a hostile worker sends so many


class Begin:
    """A question of another worker for a trace, until the control thread has answered it."""

    def __init__(self, place: int, number: int, what: "dict[str, Any]") -> None:
        self.place, self.number, self.what = place, number, what
        self.done = threading.Event()
        self.error: OSError | None = None


class Elsewhere:
    """The other workers, for traces."""

    def __init__(self, asking: "Asking | Asker", wake: "Callable[[], None]",
                 ask_others: "Callable[..., dict[int, Any]]") -> None:
        """`ask_others` asks those that can be asked now."""
        self._asking, self._wake, self._ask_others = asking, wake, ask_others
        self.place = asking.place
        self.notices: deque[tuple[str, tuple[Any, ...]]] = deque()
        self.rows: Callable[[], list[dict[str, Any]]] = list    # the traces whose readers are here
        self.refused: dict[int, int] = {}       # events of others that found no room here, by the number of the trace

    # ---- from other threads

    def arrived(self, name: str, args: "tuple[Any, ...]") -> "list[dict[str, Any]] | None":
        """Answer the question for the list, or keep a notice of another worker for the control thread. Raises OSError
        if a trace cannot begin."""
        if name == "trace_list":
            return self.rows()
        if name == "trace_news" and len(self.notices) >= NOTICES_MAX:
            if all(row["trace"] != args[0] for row in self.rows()):
                return None
            self.refused[args[0]] = self.refused.get(args[0], 0) + len(args[2])
            return None
        if name == "trace_end" and len(self.notices) >= ENDS_MAX:
            return None
        if name != "trace_begin":
            self._put(name, *args)
            return None
        begin = Begin(*args)
        self._put(name, begin)
        begin.done.wait(BEGUN_WITHIN_S)
        if begin.error is not None:
            raise begin.error
        return None

    def _put(self, name: str, *args: "Any") -> None:
        self.notices.append((name, args))
        self._wake()

    # ---- the control thread

    def peer(self, place: int, begins: bool) -> None:
        """Note that the process of another worker begins, or has ended."""
        self._put("peer", place, begins)

    def begin(self, number: int, what: "dict[str, Any]") -> None:
        """Let the others begin a trace. Raises OSError if one of them cannot."""
        self._ask_others("trace_begin", self.place, number, what)

    def lists(self) -> "dict[int, list[dict[str, Any]]]":
        """Return the traces whose readers are at other workers, by place."""
        return self._ask_others("trace_list")

    def begin_at(self, place: int, number: int, what: "dict[str, Any]") -> None:
        """Let a worker begin a trace that is there already elsewhere, when it can."""
        self._asking.notify(place, "trace_begin", self.place, number, what)

    def end(self, number: int) -> None:
        """End the trace at all others."""
        self._asking.tell("trace_end", self.place, number)

    def again(self) -> None:
        """Wake the control thread soon: another worker did not read."""
        timer = threading.Timer(AGAIN_S, self._wake)
        timer.daemon = True
        timer.start()

    def send(self, place: int, number: int, events: list[bytes], missed: "tuple[int, int, int]") -> bool:
        """Send events to the worker of their reader. Return False if it does not read now."""
        return self._asking.notify(place, "trace_news", number, self.place, events, missed)
