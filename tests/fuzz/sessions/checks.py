"""State what must hold for a client that a broker serves, whatever its other clients do."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.harness.packets import Publish
from tests.harness.properties import P


class Violation(Exception):
    """An invariant does not hold. The text has one line, whose beginning names the invariant."""


def matches(filter_: str, topic: str) -> bool:
    """Return True if the filter selects the topic, by the text of [v5 4.7]."""
    if filter_.startswith("$share/"):
        filter_ = filter_.split("/", 2)[2]
    want, have = filter_.split("/"), topic.split("/")
    if topic.startswith("$") and want[0] in ("#", "+"):
        return False
    for i, level in enumerate(want):
        if level == "#":
            return True
        if i >= len(have) or level not in ("+", have[i]):
            return False
    return len(want) == len(have)


def mounted(prefix: str, filter_: str) -> str:
    """Return the filter behind a mount point; `$` is then not at the beginning of a topic, as in Mosquitto."""
    if not filter_.startswith("$share/"):
        return prefix + filter_
    _, group, rest = filter_.split("/", 2)
    return f"$share/{group}/{prefix}{rest}"


@dataclass
class Known:
    """Hold what the clients of one sequence have sent so far, as far as it was valid."""

    filters: dict[str, set[str]] = field(default_factory=dict)      # by client id: each filter of a SUBSCRIBE
    published: set[tuple[str, bytes]] = field(default_factory=set)  # full topic and payload, wills included
    strange: bool = False       # a client has sent invalid packets, so any topic and payload may exist
    unknown: set[str] = field(default_factory=set)      # client ids that sent invalid packets: their filters are unknown

    def subscribe(self, client_id: str, filters: list[str]) -> None:
        self.filters.setdefault(client_id, set()).update(filters)

    def check(self, client_id: str, prefix: str, message: Publish, aliases: dict[int, str]) -> None:
        """Raise Violation if the client must not get this message. `aliases`: those that the broker has set so far."""
        topic = resolved(message, aliases)
        if client_id in self.unknown:
            return
        if not any(matches(mounted(prefix, one), prefix + topic) for one in self.filters.get(client_id, ())):
            raise Violation(f"not subscribed: client {client_id!r} got a message of {topic!r}")
        if not self.strange and not topic.startswith("$SYS/") and (prefix + topic, message.payload) not in self.published:
            raise Violation(f"never published: client {client_id!r} got {message.payload[:20]!r} of {topic!r}")


def resolved(message: Publish, aliases: dict[int, str]) -> str:
    """Return the topic of a received message; remember its alias, or use it."""
    alias = next((value for ident, value in message.props if ident == P.TOPIC_ALIAS), None)
    if alias is None:
        return message.topic
    assert isinstance(alias, int)
    if message.topic:
        aliases[alias] = message.topic
    elif alias not in aliases:
        raise Violation(f"alias: the broker used alias {alias} before it set it")
    return aliases[alias]
