"""Provide a broker whose control plane is a test: it records requests on control topics and sends the given answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tests.harness.plane import Plane
from mosq.records import CommandAnswer, CommandRequest, PublishCommand

DYNSEC, BROKER, OWN = "$CONTROL/dynamic-security/v1", "$CONTROL/broker/v1", "$CONTROL/mosq/broker/v1"
Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Answering:
    """Answer commands; `answer` makes the response to a command, without correlationData."""

    def __init__(self, answer: Answer | None = None, topics: tuple[str, ...] = (DYNSEC, BROKER, OWN), **plane: Any) -> None:
        self.plane = Plane(settings={"control_topics": topics, "control_loopback": 1}, **{"allow_anonymous": True, **plane})
        self.port = self.plane.port
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer: Answer = answer or (lambda command: {})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        self.plane.__exit__(kind, error, at)

    def _serve(self) -> None:
        while not self._ended.is_set():
            self.plane.look(0.02)
            while self.plane.waiting:
                request = self.plane.waiting.popleft()
                if request.kind == "control":
                    self._respond(request)

    def _respond(self, request: CommandRequest) -> None:
        topic = request.topic
        [command] = json.loads(request.payload)["commands"]
        correlation = command.pop("correlationData", None)
        self.asked.append((topic, command))
        response = {"command": command["command"], **self.answer(command)}
        if correlation is not None:
            response["correlationData"] = correlation
        payload = json.dumps({"responses": [response]}).encode()
        if topic == OWN:
            self.plane.answer(CommandAnswer(request.handle, [(f"{topic}/response", payload)], request.correlation))
        else:
            self.plane.answer(PublishCommand(f"{topic}/response", payload, 0, False))
