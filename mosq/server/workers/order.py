"""The parent's part of what workers do together: changes of dynamic security in one order, and calls of plugins that
concern all workers. Knows messages, not their contents.

    worker A   turn ->          take (each other worker) ->        everywhere -> A
               -> turn          changed ->          -> taken

A worker changes the file only in its turn, and one worker has the turn. So the file is written by one process at a
time, and a worker that is killed in its turn leaves the old file or the new one. After `changed`, every other worker
takes the rules from the file. A worker that starts reads the file first and finds `take` in its channel before its
first link, and it serves no client without links (docs/adr/0034-dynamic-security-and-plugins-with-workers.md).
"""

import os
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mosq.server.workers.channel import Message
    from mosq.server.workers.slot import Slot

LIMIT_S = 30.0                  # of a turn, and of a worker that takes a change; then it is killed


class Order:
    """The worker that has the turn, those that wait for it, and those that have not taken its change yet."""

    def __init__(self, slots: "Sequence[Slot]") -> None:
        self._slots = slots
        self._waiting: deque[Slot] = deque()
        self._holder: Slot | None = None        # None: no turn, or its worker has ended
        self._open: set[int] = set()            # places of the workers that have not taken the change
        self._number = 0                        # of the change, so that no earlier answer counts
        self._limit_s = 0.0

    @property
    def busy(self) -> bool:
        """Return whether a worker has the turn, or others have not taken its change."""
        return self._holder is not None or bool(self._open)

    def received(self, slot: "Slot", message: "Message", fds: list[int], now_s: float) -> None:
        """Serve a message of a worker; ignore those of other parts. Closes the descriptors."""
        try:
            what = message["is"]
            if what == "turn":
                self._waiting.append(slot)
            elif what == "changed" and slot is self._holder and not self._open:
                self._spread(slot, fds, now_s)
            elif what == "over" and slot is self._holder:
                self._holder = None
            elif what == "taken" and message["number"] == self._number:
                self._taken(slot)
            elif what == "pass":
                self._pass(slot, fds)
        finally:
            for fd in fds:
                os.close(fd)

    def ended(self, slot: "Slot", now_s: float) -> None:
        """Note the end of a worker. If it had the turn, it may have changed the file: the others look."""
        self._waiting = deque(one for one in self._waiting if one is not slot)
        self._taken(slot)
        if slot is self._holder:
            self._holder = None
            if not self._open:
                self._spread(slot, [], now_s)

    def look(self, now_s: float, may_begin: bool) -> None:
        """Give the next worker its turn, if no reload runs; kill the workers that block the others."""
        if self.busy:
            if now_s >= self._limit_s:
                late = [slot for slot in self._slots if slot.place in self._open]
                self._kill(late or [slot for slot in (self._holder,) if slot is not None], now_s)
        elif may_begin and self._waiting:
            self._holder = self._waiting.popleft()
            self._limit_s = now_s + LIMIT_S
            _send(self._holder, {"do": "turn"})

    def _spread(self, origin: "Slot", fds: list[int], now_s: float) -> None:
        others = [slot for slot in self._slots if slot is not origin and slot.channel is not None]
        self._number += 1
        self._limit_s = now_s + LIMIT_S
        self._open = {slot.place for slot in others if slot.ready}
        for slot in others:
            _send(slot, {"do": "take", "number": self._number, "sure": origin is self._holder}, fds)
        self._finish()

    def _taken(self, slot: "Slot") -> None:
        if slot.place in self._open:
            self._open.discard(slot.place)
            self._finish()

    def _finish(self) -> None:
        if not self._open and self._holder is not None:
            _send(self._holder, {"do": "everywhere"})

    def _pass(self, origin: "Slot", fds: list[int]) -> None:
        for slot in self._slots:
            if slot is not origin and slot.ready:
                _send(slot, {"do": "passed"}, fds)
        _send(origin, {"do": "pass_again"})

    def _kill(self, late: "Iterable[Slot]", now_s: float) -> None:
        from signal import SIGKILL

        self._limit_s = now_s + LIMIT_S
        for slot in late:
            slot.killed_for = f"has not finished a change of dynamic security within {LIMIT_S:.0f} seconds"
            slot.kill(SIGKILL)


def _send(slot: "Slot", message: "Message", fds: list[int] | None = None) -> None:
    if slot.channel is not None:
        slot.channel.send(message, fds or [])
