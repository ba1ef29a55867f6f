"""Who answers what is published below `$CONTROL/`. Knows topics and handlers; neither commands nor the data plane.

    PUBLISH $CONTROL/x/v1 -> data plane (may this client write there?) -> Engine.requests()
                                                                -> take -> handler -> Engine.answer()

An answer is published by the broker, as Mosquitto does: whoever subscribed and may read it gets it, so who asks
subscribes first. What a *private* topic answers goes to who asked alone, subscribed or not. Handlers are called on the
control thread, one request after the other: what takes long there delays log-ins, not messages.

Imported before the broker listens: imports nothing itself.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.config.model import Config
    from mosq.engine import Engine

    Bridges = Callable[[], list[dict[str, Any]]]
    Handler = Callable[["Asker", bytes], list[tuple[str, bytes]]]

ERROR, INFORMATION = 1, 8       # as mosq.config.options.LOG_TYPES has it


class Asker:
    """A client, as it was when it asked."""

    __slots__ = ("address", "client_id", "security", "then", "username")

    def __init__(self, client_id: str, username: "str | None", address: str, security: int) -> None:
        self.client_id, self.username, self.address, self.security = client_id, username, address, security
        self.then: list[tuple[Any, ...]] = []       # what else the engine is to be told, after the answer


class ControlTopics:
    """The topics that somebody answers, for one configuration."""

    def __init__(self, say: "Callable[[int, str], None]") -> None:
        self._say = say
        self._handlers: dict[str, tuple[Handler, bool]] = {}

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
        """(answers for the engine, requests that are not ours)."""
        answers, others = [], []
        for request in requests:
            if request[0] == "control":
                answers += self._answers(request)
            else:
                others.append(request)
        return answers, others

    def _answers(self, request: "tuple[Any, ...]") -> "list[tuple[Any, ...]]":
        _, handle, security, client_id, username, address, topic, payload, correlation = request
        handler, private = self._handlers.get(topic, (None, False))
        if handler is None:
            return []           # asked before a reload
        try:
            asker = Asker(client_id, username, address, security)
            messages = handler(asker, payload)
        except Exception as error:      # the broker goes on; what was asked may be secret
            self._say(ERROR, f"Error: What was asked on {topic} could not be answered: {type(error).__name__}.")
            return []
        if private:
            return [("control", handle, messages, correlation), *asker.then]
        return [*(("publish", to, answer, 0, False) for to, answer in messages), *asker.then]


def topics_of(config: "Config", engine: "Callable[[], Engine]", say: "Callable[[int, str], None]",
              bridges: "Bridges | None" = None) -> ControlTopics:
    """Who answers with this configuration. `engine` is asked for when there are requests; `bridges` tells a dict of
    each bridge, see docs/control.md."""
    topics = ControlTopics(say)
    if config.enable_control_api:
        from mosq.admin import broker, inspect

        topics.add(broker.TOPIC, broker.commands(config, topics.names, say))
        topics.add(inspect.TOPIC, inspect.commands(engine, bridges, say), private=True)
    return topics
