"""The agent of a node: runs a Member (member.py) with a clock, threads and Redis, until it has left or is stopped.

Two threads. The keeper, which is the thread that calls `run`, has the member and calls the workers. It waits for
nothing but its queue, so it kills the workers in time even while Redis, a name server or a connection hangs. The asker
sends one request at a time. Memory is bounded: one request, one answer, and one event and one note for each worker.

An agent is a process of its own, because the parent of the workers may have no thread (ADR 25). The parent ends its
workers when the time that `Workers.lease` last gave it is over, also if the agent is stopped or dead.
"""

import queue
import threading

from mosq.cluster.errors import AwayError
from mosq.cluster.requests import DONE, Inspect, Note
from mosq.cluster.terms import now_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from mosq.cluster.member import Member
    from mosq.cluster.requests import Answer, Request, View

    class Asks(Protocol):
        """An object that answers requests: a Registry."""

        def ask(self, request: Request) -> Answer:
            """Return the answer. Raises AwayError."""

        def close(self) -> None:
            """End the connection."""

INSPECT_S = 30.0                # between two looks at the settings of Redis


class Agent:
    """One node's agent."""

    def __init__(self, registry: "Asks", member: "Member", clock: "Callable[[], float]" = now_s,
                 noted: "Callable[[dict[int, str], dict[str, str]], object]" = lambda *_: None,
                 inspected: "Callable[[str], object]" = lambda _: None,
                 viewed: "Callable[[View], object]" = lambda _: None) -> None:
        """`noted` gets the figures of all workers and the options of all nodes after each note. `inspected` gets the
        setting of Redis that is wrong, when that changes ("": none). `viewed` gets each view before the member does.
        The keeper calls all of them."""
        self._registry, self._member, self._clock = registry, member, clock
        self._noted, self._inspected, self._viewed = noted, inspected, viewed
        self._inspect_s = clock() + INSPECT_S
        self._warning = ""              # what `inspected` got last
        self._notes: dict[int, str] = {}        # figures of workers that Redis does not have yet
        self._kept: dict[str, str] = {}         # fields that must come to Redis, and are not there yet
        self._keep_s = float("-inf")            # when they are sent again
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._questions: queue.SimpleQueue[tuple[int, Request] | None] = queue.SimpleQueue()
        self._asked: tuple[int, Request, float] | None = None      # the request that waits for its answer
        self._numbers = 0
        self._busy = False              # the asker has not come back yet, also from a request that was given up
        self._stopped = False

    # ---- from any thread

    def serves(self, worker: int, token: int) -> None:
        """Take that a worker's process serves clients (member.py)."""
        self._events.put(lambda: self._member.serves(worker, token))

    def ended(self, worker: int, token: int, failed: bool = False) -> None:
        """Take the end of a worker's process (member.py)."""
        self._events.put(lambda: self._member.ended(worker, token, failed))

    def note(self, worker: int, figures: str) -> None:
        """Write to Redis what a worker reports about itself, when there is nothing more urgent."""
        self._events.put(lambda: self._notes.update({worker: figures}))

    def keep(self, field: str, text: str) -> None:
        """Write something to Redis that stays there; again and again until it is there."""
        self._events.put(lambda: self._kept.update({field: text}))

    def leave(self) -> None:
        """Give all workers away, then leave and end `run`."""
        self._events.put(self._member.leave)

    def stop(self) -> None:
        """Kill all workers and end `run`, without a word to the other nodes."""
        self._events.put(self._stop)

    # ---- the keeper

    def run(self) -> None:
        """Be a node until it has left or is stopped; in each case no worker runs after that. Raises NameUsedError if
        another node has the name."""
        asker = threading.Thread(target=self._ask_all, name="mosq-cluster-asker", daemon=True)
        asker.start()
        try:
            while not self._stopped and not self._member.out:
                self._turn()
        finally:
            self._member.end()
            self._questions.put(None)
        if self._member.error is not None:
            raise self._member.error

    def _turn(self) -> None:
        """Ask if there is something to ask, then wait for one event, or until the next time that counts."""
        member, now = self._member, self._clock()
        member.check(now)
        if self._asked is not None and now - self._asked[2] >= member.terms.request_s:
            _, request, _ = self._asked
            self._asked = None
            self._failed(now, request, "Redis does not answer in time.")
        if self._asked is None and not self._busy:
            question = member.turn(now)
            if question is None and (self._notes or (self._kept and now >= self._keep_s)):
                question, self._notes = Note((*sorted(self._notes.items()), *sorted(self._kept.items()))), {}
                self._keep_s = now + member.terms.beat_s        # after an error
            if question is None and now >= self._inspect_s:
                question, self._inspect_s = Inspect(), now + INSPECT_S
            if question is not None:
                self._numbers += 1
                self._asked, self._busy = (self._numbers, question, now), True
                self._questions.put((self._numbers, question))
        try:
            event = self._events.get(timeout=max(0.0, self._until_s() - self._clock()))
        except queue.Empty:
            return
        member.check(self._clock())
        event()

    def _until_s(self) -> float:
        member = self._member
        times = [self._clock() + member.terms.lease_s]
        if member.running():
            times.append(member.lease_until_s)
        if self._asked is not None:
            times.append(self._asked[2] + member.terms.request_s)
        elif not self._busy:
            times.append(member.wake_s())
        return min(times)

    def _answered(self, number: int, answer: "Answer | AwayError") -> None:
        self._busy = False
        if self._asked is None or self._asked[0] != number:
            return                      # it was given up
        _, request, sent_s = self._asked
        self._asked = None
        now = self._clock()
        if isinstance(answer, AwayError):
            self._failed(now, request, str(answer))
        elif isinstance(request, Note):
            if answer.status == DONE:
                self._kept = {field: text for field, text in self._kept.items() if (field, text) not in request.fields}
            self._noted(answer.figures or {}, answer.options or {})
        elif isinstance(request, Inspect):
            if answer.warning != self._warning:
                self._warning = answer.warning
                self._inspected(answer.warning)
        else:
            if answer.view is not None:
                self._viewed(answer.view)
            self._member.answered(now, sent_s, request, answer)

    def _failed(self, now: float, request: "Request", text: str) -> None:
        if not isinstance(request, Note | Inspect):     # the next figures follow
            self._member.failed(now, request, text)

    def _stop(self) -> None:
        self._stopped = True

    # ---- the asker

    def _ask_all(self) -> None:
        while (question := self._questions.get()) is not None:
            number, request = question
            answer: Answer | AwayError
            try:
                answer = self._registry.ask(request)
            except AwayError as error:
                answer = error
            except Exception as error:      # a fault of the client: the log names it, and the lease ends
                answer = AwayError(f"the client of Redis failed: {error!r}")
            self._put_answer(number, answer)
        self._registry.close()

    def _put_answer(self, number: int, answer: "Answer | AwayError") -> None:
        self._events.put(lambda: self._answered(number, answer))
