"""Who answers what is published below `$CONTROL/`. Knows topics and handlers; neither commands nor the data plane.

    PUBLISH $CONTROL/x/v1 -> data plane (may this client write there?) -> Engine.requests()
                                                                -> take -> handler -> Engine.answer()

An answer is published by the broker, as Mosquitto does: whoever subscribed and may read it gets it, so who asks
subscribes first. What a *private* topic answers goes to who asked alone, subscribed or not.

Handlers are called on the control thread. One whose answer takes more than a moment is a generator: it yields between
its steps, True to go on as soon as others had their turn, False to wait for who wakes the control thread. So a message
of a hundred thousand commands delays log-ins and signals by TURN_S and its longest step, not by all of it.
Invariants: of a topic one request is worked on at a time, answers keep the order of requests, LINE_BYTES_MAX wait; what
is begun goes on after a reload, the others are told to ask again: who may ask is looked at once, when it was published.

Imported before the broker listens: imports next to nothing itself.
"""

from collections import deque
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any


    Bridges = Callable[[], list[dict[str, Any]]]
    Messages = list[tuple[str, bytes]]              # (topic, payload)
    Work = Generator[bool, None, Messages]
    Handler = Callable[["Asker", bytes], Messages | Work]

ERROR, INFORMATION = 1, 8       # as mosq.config.options.LOG_TYPES has it
TURN_S = 0.01                   # of the control thread, until others are served
LINE_BYTES_MAX = 64 << 20       # of requests that wait behind one, on one topic
REQUEST_BYTES = 1024            # of memory for each, besides the texts and bytes in it
BUSY, RELOADED = (b'{"responses":[{"command":"Unknown command","error":"%s"}]}' % why
                  for why in (b"Too many commands at once", b"The configuration was reloaded, ask again"))


class Asker:
    """A client, as it was when it asked."""

    __slots__ = ("address", "client_id", "security", "then", "username")

    def __init__(self, client_id: str, username: "str | None", address: str, security: int) -> None:
        self.client_id, self.username, self.address, self.security = client_id, username, address, security
        self.then: list[tuple[Any, ...]] = []       # what else the engine is to be told, after the answer


class _Line:
    """The requests of one topic, in their order; the first is the one that is worked on."""

    __slots__ = ("asker", "bytes", "requests", "work")

    def __init__(self) -> None:
        self.requests: deque[tuple[Any, ...]] = deque()
        self.bytes = 0
        self.asker: Asker | None = None         # of the first, once it is begun
        self.work: Work | None = None

    def put(self, request: "tuple[Any, ...]") -> bool:
        """False: there is no room."""
        n = _weight(request)
        if self.requests and self.bytes + n > LINE_BYTES_MAX:
            return False
        self.requests.append(request)
        self.bytes += n
        return True

    def end(self) -> None:
        self.bytes -= _weight(self.requests.popleft())
        self.asker = self.work = None

    def not_begun(self) -> "list[tuple[Any, ...]]":
        """They wait no more."""
        first = [self.requests.popleft()] if self.work is not None else []
        left = list(self.requests)
        self.requests = deque(first)
        self.bytes = sum(map(_weight, first))
        return left


def _weight(request: "tuple[Any, ...]") -> int:
    return REQUEST_BYTES + sum(len(one) for one in request if isinstance(one, (str, bytes)))


class ControlTopics:
    """The topics that somebody answers, for one configuration."""

    def __init__(self, say: "Callable[[int, str], None]", wake: "Callable[[], None]") -> None:
        """`wake` has the control thread call `take` again, from any thread."""
        self._say, self.wake = say, wake
        self._handlers: dict[str, tuple[Handler, bool]] = {}
        self._lines: dict[str, _Line] = {}      # none is empty; the topic whose turn it is first
        self._refused: list[tuple[Any, ...]] = []       # answers to what a reload cut off

    def add(self, topic: str, handler: "Handler", *, private: bool = False) -> None:
        if not topic.startswith("$CONTROL/"):
            raise ValueError(f"{topic!r} is no control topic: expected $CONTROL/...")
        if topic in self._handlers:
            raise ValueError(f"somebody answers {topic!r} already")
        self._handlers[topic] = handler, private

    def names(self) -> tuple[str, ...]:
        """What the engine is to be told."""
        return tuple(self._handlers)

    def take(self, requests: "list[tuple[Any, ...]]") -> "tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]":
        """(answers for the engine, requests that are not ours). Goes on with what was begun before."""
        answers, others = self._refused, []
        self._refused = []
        for request in requests:
            if request[0] != "control":
                others.append(request)
            elif request[6] in self._handlers:      # else it was asked before a reload
                line = self._lines.setdefault(request[6], _Line())
                if not line.put(request):
                    answers += self._refusal(request, BUSY)
        if self._lines:
            answers += self._work_off()
        return answers, others

    def take_over(self, earlier: "ControlTopics") -> None:
        """What is not answered yet, when this configuration takes the place of another one."""
        self._refused += earlier._refused
        for topic, line in earlier._lines.items():
            if topic in self._handlers:
                for request in line.not_begun():
                    self._refused += self._refusal(request, RELOADED)
                if line.requests:
                    self._lines[topic] = line
        if self._lines or self._refused:
            self.wake()

    def _work_off(self) -> "list[tuple[Any, ...]]":
        answers: list[tuple[Any, ...]] = []
        until_s = monotonic() + TURN_S
        for topic in list(self._lines):
            line = self._lines.pop(topic)
            goes_on = True
            while goes_on and line.requests:
                goes_on = self._step(line, answers)
                if monotonic() >= until_s:
                    break
            if line.requests:
                self._lines[topic] = line       # behind the others
            if monotonic() >= until_s:
                break
        if monotonic() >= until_s and self._lines:
            self.wake()
        return answers

    def _step(self, line: _Line, answers: "list[tuple[Any, ...]]") -> bool:
        """One of the first request. False: it waits for somebody."""
        request = line.requests[0]
        _, _, security, client_id, username, address, topic, payload, _ = request
        if line.asker is None:
            line.asker = Asker(client_id, username, address, security)
        messages: Messages = []
        try:
            if line.work is None:
                done = self._handlers[topic][0](line.asker, payload)
                if not isinstance(done, list):
                    line.work = done
                    return True
                messages = done
            else:
                return next(line.work)
        except StopIteration as stop:
            messages = stop.value
        except Exception as error:      # the broker goes on; what was asked may be secret
            self._say(ERROR, f"Error: What was asked on {topic} could not be answered: {type(error).__name__}.")
        answers += [*self._given(request, messages), *line.asker.then]
        line.end()
        return True

    def _refusal(self, request: "tuple[Any, ...]", payload: bytes) -> "list[tuple[Any, ...]]":
        return self._given(request, [(f"{request[6]}/response", payload)])

    def _given(self, request: "tuple[Any, ...]", messages: "Messages") -> "list[tuple[Any, ...]]":
        if self._handlers[request[6]][1]:
            return [("control", request[1], messages, request[8])] if messages else []
        return [("publish", to, answer, 0, False) for to, answer in messages]
