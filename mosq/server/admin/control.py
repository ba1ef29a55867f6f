"""Distributes requests on `$CONTROL/` topics to their handlers. Knows topics and handlers; neither commands nor the
data plane.

  PUBLISH $CONTROL/x/v1 -> data plane (may this client write there?) -> Engine.requests()
                                                               -> take -> handler -> Engine.answer()

The broker publishes an answer as a message, as Mosquitto does: every client that subscribed and may read it gets it, so
a client subscribes before it sends a request. An answer on a *private* topic goes only to the client that sent the
request, with or without a subscription.

The control thread calls the handlers. A handler that needs longer is a generator: it yields between its steps, True to
continue after the others had their turn, False to wait until the control thread is woken. So a message of a hundred
thousand commands delays logins and signals by TURN_S plus its longest step, not by its whole duration.
Invariants: each topic works on one request at a time; answers keep the order of requests; requests of at most
LINE_BYTES_MAX bytes wait. A request that has begun continues after a reload; the waiting ones are answered with
RELOADED, because the rights of a client are checked only once, when it publishes the request.

Imported before the broker listens, so it imports almost nothing.
"""

from collections import deque
from time import monotonic

from mosq.log_types import ERROR
from mosq.records import CommandAnswer, CommandRequest, PublishCommand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from mosq.records import Answer, Request

    BridgeStates = Callable[[], list[dict[str, Any]]]
    from mosq.server.admin.traces import Traces

    Messages = list[tuple[str, bytes]]              # (topic, payload)
    Work = Generator[bool, None, Messages]
    Handler = Callable[["Requester", bytes], Messages | Work]

TURN_S = 0.01                   # time on the control thread until other work is served
LINE_BYTES_MAX = 8 << 20       # limit of the requests that wait on one topic
REQUEST_BYTES = 1024            # assumed memory of a request without its texts and bytes
BUSY, RELOADED = (b'{"responses":[{"command":"Unknown command","error":"%s"}]}' % why
                  for why in (b"Too many commands at once", b"The configuration was reloaded, ask again"))


class Requester:
    """The client that sent a request, with its state at that time."""

    __slots__ = ("address", "client_id", "correlation", "further_answers", "handle", "security", "username")

    def __init__(self, client_id: str, username: "str | None", address: str, security: int,  # parameters: of a request
                 handle: int = 0, correlation: bytes | None = None) -> None:
        self.client_id, self.username, self.address, self.security = client_id, username, address, security
        self.handle, self.correlation = handle, correlation
        self.further_answers: list[Answer] = []  # further answers for the engine, sent after the response


class _Line:
    """The requests of one topic in their order. Only the first is worked on."""

    __slots__ = ("requester", "bytes", "requests", "work")

    def __init__(self) -> None:
        self.requests: deque[CommandRequest] = deque()
        self.bytes = 0
        self.requester: Requester | None = None  # client of the first request; None until work on it begins
        self.work: Work | None = None

    def put(self, request: CommandRequest) -> bool:
        """Append a request; return False if there is no room."""
        n = _weight(request)
        if self.requests and self.bytes + n > LINE_BYTES_MAX:
            return False
        self.requests.append(request)
        self.bytes += n
        return True

    def end(self) -> None:
        self.bytes -= _weight(self.requests.popleft())
        self.requester = self.work = None

    def not_begun(self) -> list[CommandRequest]:
        """Remove and return the requests that have not begun."""
        first = [self.requests.popleft()] if self.work is not None else []
        left = list(self.requests)
        self.requests = deque(first)
        self.bytes = sum(map(_weight, first))
        return left


def _weight(request: CommandRequest) -> int:
    return REQUEST_BYTES + sum(len(one) for one in request if isinstance(one, (str, bytes)))


class ControlTopics:
    """The topics that the broker answers with one configuration."""

    def __init__(self, report: "Callable[[int, str], None]", wake: "Callable[[], None]") -> None:
        """`log` writes a log line. `wake` makes the control thread call `take` again; any thread may call it."""
        self._report, self.wake = report, wake
        self._handlers: dict[str, tuple[Handler, bool]] = {}
        self._lines: dict[str, _Line] = {}      # no line is empty; the topic with the next turn is first
        self._refused: list[Answer] = []       # answers to requests that a reload cut off
        self.traces: Traces | None = None

    def add(self, topic: str, handler: "Handler", *, private: bool = False) -> None:
        """Register the handler of a topic. Raises ValueError if the topic is no control topic or is taken."""
        if not topic.startswith("$CONTROL/"):
            raise ValueError(f"{topic!r} is no control topic: expected $CONTROL/...")
        if topic in self._handlers:
            raise ValueError(f"{topic!r} has a handler already")
        self._handlers[topic] = handler, private

    def names(self) -> tuple[str, ...]:
        """Return the topics for the engine."""
        return tuple(self._handlers)

    def take(self, requests: "list[Request]") -> "tuple[list[Answer], list[Request]]":
        """Work on the requests, also on those begun before; return (answers for the engine, requests for other
        components)."""
        answers, self._refused = self._refused, []
        others: list[Request] = []
        for request in requests:
            if not isinstance(request, CommandRequest):
                others.append(request)
            elif request.topic in self._handlers:      # otherwise it was sent before a reload
                line = self._lines.setdefault(request.topic, _Line())
                if not line.put(request):
                    answers += self._refusal(request, BUSY)
        if self._lines:
            answers += self._work_off()
        if self.traces is not None and self.traces.has_work():
            answers += self.traces.serve()
        return answers, others

    def take_over(self, earlier: "ControlTopics") -> None:
        """Take over the unfinished requests of the configuration that this one replaces."""
        self._refused += earlier._refused
        if earlier.traces is not None and earlier.traces.has_work():
            if self.traces is not None:
                self.traces.take_over(earlier.traces)
            else:
                earlier.traces.stop_all()
        for topic, line in earlier._lines.items():
            if topic in self._handlers:
                for request in line.not_begun():
                    self._refused += self._refusal(request, RELOADED)
                if line.requests:
                    self._lines[topic] = line
        if self._lines or self._refused:
            self.wake()

    def _work_off(self) -> "list[Answer]":
        answers: list[Answer] = []
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

    def _step(self, line: _Line, answers: "list[Answer]") -> bool:
        """Run one step of the first request. Return False if the request waits for another event."""
        request = line.requests[0]
        topic = request.topic
        if line.requester is None:
            line.requester = Requester(request.client_id, request.username, request.address, request.security,
                                       request.handle, request.correlation)
        messages: Messages = []
        try:
            if line.work is None:
                done = self._handlers[topic][0](line.requester, request.payload)
                if not isinstance(done, list):
                    line.work = done
                    return True
                messages = done
            else:
                return next(line.work)
        except StopIteration as stop:
            messages = stop.value
        except Exception as error:      # the broker continues; the payload may be secret, so it is not logged
            self._report(ERROR, f"Error: A request on {topic} could not be answered: {type(error).__name__}.")
        answers += [*self._given(request, messages), *line.requester.further_answers]
        line.end()
        return True

    def _refusal(self, request: CommandRequest, payload: bytes) -> "list[Answer]":
        return self._given(request, [(f"{request.topic}/response", payload)])

    def _given(self, request: CommandRequest, messages: "Messages") -> "list[Answer]":
        if self._handlers[request.topic][1]:
            return [CommandAnswer(request.handle, messages, request.correlation)] if messages else []
        return [PublishCommand(to, answer) for to, answer in messages]
