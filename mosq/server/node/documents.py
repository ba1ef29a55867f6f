"""The parent's part of dynamic security: it gives each version of the document to all workers of this node, and learns
which of them use it. Knows stamps and descriptors, not contents.

    agent `rules` -> `rules` to each worker -> `uses` of each -> `used` to the agent, `answer` to the worker that asked

A worker that serves clients and does not take a version in time is killed, because it would go on with other rules.
"""

from collections import deque
from typing import NamedTuple

from mosq.auth.dynsec.document import Document
from mosq.auth.dynsec.outcome import DONE
from mosq.cluster.terms import Terms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mosq.server.node.slot import NodeSlot
    from mosq.server.workers.channel import Message


class Coming(NamedTuple):
    """A document that not all workers use yet."""

    number: int                 # of the documents that came until then, with this one
    stamp: str
    due_s: float                # when a worker that does not use it is late


class Documents:
    """The newest document of this node, and those that not all of its workers use yet."""

    def __init__(self, slots: "Sequence[NodeSlot]", lease_s: float, document: Document | None,
                 tell: "Callable[[Message, list[int]], None]") -> None:
        """`tell` sends a message to the agent."""
        self._slots, self._within_s, self._tell = slots, Terms(lease_s).change_s, tell
        self.document = document
        self.count = 0                  # of the documents that came
        stamp = "" if document is None else document.stamp
        self._coming = deque([Coming(0, stamp, float("inf"))])
        self._answers: list[tuple[NodeSlot, Message, int]] = []     # with the count that all workers must use before

    @property
    def due_s(self) -> float | None:
        """Return when a worker is late; None: all use the newest document."""
        return self._coming[0].due_s if self._coming else None

    def came(self, stamp: str, fd: int, now_s: float) -> None:
        """Give a new document to all workers, also to those that start: they serve no client before they have read
        their messages."""
        if self.document is not None:
            self.document.close()
        self.document, self.count = Document(stamp, fd), self.count + 1
        self._coming.append(Coming(self.count, stamp, now_s + self._within_s))
        for slot in self._slots:
            if slot.channel is not None:
                slot.channel.send({"do": "rules", "stamp": stamp, "count": self.count}, [fd])

    def asked(self, slot: "NodeSlot", message: "Message", fds: list[int]) -> None:
        """Take a message of a worker."""
        if message["is"] == "uses":
            slot.uses = message["count"]
        else:
            rest = {name: value for name, value in message.items() if name != "is"}
            self._tell({"do": message["is"], "worker": slot.place, "pid": slot.pid, **rest}, fds)

    def answered(self, message: "Message") -> None:
        """Take an answer of the agent, for a worker that may have ended. An answer that says that all is done waits
        until all workers here use the document, which came before."""
        self._answers.append((self._slots[message["worker"]], message, self.count if message["status"] == DONE else 0))

    def look(self, read_s: float) -> None:
        """Do what is due: let the agent and the workers know what all workers use, or kill those that are late.
        `read_s`: all that the workers had sent until then was taken."""
        used = min((slot.uses for slot in self._slots if slot.ready), default=self.count)
        last = None
        while self._coming and self._coming[0].number <= used:
            last = self._coming.popleft()
        if last is not None:
            self._tell({"do": "used", "stamp": last.stamp}, [])
        answers, self._answers = self._answers, []
        for slot, message, count in answers:
            if count > used:
                self._answers.append((slot, message, count))
            elif slot.pid == message["pid"] and slot.channel is not None:
                slot.channel.send({"do": "answer", **{name: message[name] for name in ("number", "status", "why")}})
        if self._coming and read_s >= self._coming[0].due_s:
            self._kill(read_s)

    def _kill(self, read_s: float) -> None:
        from signal import SIGKILL

        first = self._coming.popleft()
        for slot in self._slots:
            if slot.ready and slot.uses < first.number:
                slot.killed_for = f"has not taken a change of dynamic security within {self._within_s:g} seconds"
                slot.kill(SIGKILL)
        self._coming.appendleft(first._replace(due_s=read_s + self._within_s))
