"""Reads a trace from a broker: begins it, asks for one batch after the other, and counts what was lost. Knows the
requests of `$CONTROL/mosq/trace/v1`, not packets."""

import json
import queue
import time

from mosq.tools.ctl.conversation import Conversation, NoAnswerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from mosq.tools.ctl.connection import Connection

TOPIC = "$CONTROL/mosq/trace/v1"
ANSWER = f"{TOPIC}/response"
AGAIN_S = 5.0                   # a request without an answer is repeated: a full output drops answers
TURN_S = 0.2                    # the longest wait without a look at the clock and at signals


class TraceError(Exception):
    """The broker refuses the trace; the text says why."""


class Follower(Conversation):
    """One trace over its own connection, until close()."""

    def __init__(self, connection: "Connection") -> None:
        super().__init__(connection)
        self.lost: dict[str, int] = {}
        self.ended: str | None = None
        self.number = 0
        self._next = 0                  # number of the next event
        self._left: int | None = None   # events until the end; None: no bound

    def begin(self, what: "dict[str, Any]") -> None:
        """Begin the trace. Raises NoAnswerError, TraceError."""
        response = self.send(TOPIC, {"command": "startTrace", **what})
        if "error" in response:
            raise TraceError(response["error"])
        self.number = response["data"]["trace"]
        self._left = what.get("count")

    def events(self, until_s: float | None = None) -> "Iterator[list[dict[str, Any]]]":
        """Yield batches until the trace ends, an empty one while nothing happens. Raises NoAnswerError, TraceError."""
        asked_s = 0.0
        while self.ended is None and (until_s is None or time.monotonic() < until_s):
            if time.monotonic() >= asked_s + AGAIN_S:
                self._ask()
                asked_s = time.monotonic()
            batch = self._batch()
            if batch is None:
                yield []
                continue
            if self.ended is None:
                self._ask()
                asked_s = time.monotonic()
            yield batch
            if self._left is not None:
                self._left -= len(batch)
                if self._left <= 0:
                    return              # the broker ends the trace with the next event, which may not come

    def _ask(self) -> None:
        payload = json.dumps({"commands": [{"command": "readTrace", "trace": self.number}]})
        self._topic = TOPIC
        self._client.publish(TOPIC, payload.encode(), self._qos)

    def _batch(self) -> "list[dict[str, Any]] | None":
        """Return the events of the next answer with data; None if there is none for a short time."""
        try:
            kind, what = self._events.get(timeout=TURN_S)
        except queue.Empty:
            return None
        if kind == "disconnect":
            self.closed = True
            raise NoAnswerError(f"The broker has closed the connection: {what}.")
        if kind == "publish" and what.is_failure:
            raise NoAnswerError(f"Publish error: {what}")
        return self._taken(what) if kind == "message" and what.topic == ANSWER else None

    def _taken(self, message: "Any") -> "list[dict[str, Any]] | None":
        try:
            response = json.loads(message.payload)["responses"][0]
            if "error" in response:
                raise TraceError(response["error"])
            data = response.get("data")
            if data is None or data["trace"] != self.number:
                return None
            events: list[dict[str, Any]] = data["events"]
            way = self.lost.get("way", 0) + max(0, data["first"] - self._next)
            self._next = data["first"] + len(events)
            self.lost = {**data["lost"], "way": way}
            self.ended = data.get("ended")
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise NoAnswerError(f"The broker's answer is no trace: {type(error).__name__}.") from None
        return events
