"""Define the differences that are known: each rule names the row of docs/differences.md (its first cell) that documents it.

A rule explains the first difference of a session, which then ends: later steps would be compared in different states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.differential.heard import CLOSED
from tests.differential.side import Heard, frames
from tests.fuzz.sessions.steps import Step
from tests.harness.packets import Connack, Disconnect, Puback, Publish, Pubrec


@dataclass(frozen=True)
class Difference:
    """The first step after which the two brokers have sent something different."""

    peer: str               # "2.0" or "2.1"
    config: str             # name of the configuration
    steps: list[Step]       # the steps so far; the last one made the difference
    ours: Heard
    theirs: Heard

    def of_sender(self) -> tuple[list[Any], list[Any]] | None:
        """Return what the client of the last step has received (ours, theirs); None if it does not differ."""
        n = self.steps[-1][1]
        ours, theirs = ([one.key for one in side.get(n, [])] for side in (self.ours, self.theirs))
        return (ours, theirs) if ours != theirs else None

    def differing(self) -> list[tuple[list[Any], list[Any]]]:
        """Return what each client that differs has received: (ours, theirs)."""
        pairs = ((self.ours.get(n, []), self.theirs.get(n, [])) for n in sorted({*self.ours, *self.theirs}))
        both = (([one.key for one in a], [one.key for one in b]) for a, b in pairs)
        return [(a, b) for a, b in both if a != b]


TAKE_OVER = "a 5.0 client that is taken over"      # row of docs/differences.md


def without_take_over(heard: Heard) -> Heard:
    """Leave out DISCONNECT 0x8E, which Mosquitto 2.0 does not send. Take-overs are frequent, so the session goes on."""
    return {n: [item for item in items if not (isinstance(item.key, Disconnect) and item.key.rc == 0x8E)] for n, items in heard.items()}


@dataclass(frozen=True)
class Rule:
    row: str
    explains: Callable[[Difference], bool]
    peers: tuple[str, ...] = ("2.0", "2.1")


def closes(keys: list[Any], rc: int | None) -> bool:
    """Return True if the broker has ended a connection, with this reason code in DISCONNECT; None: without DISCONNECT."""
    codes = [key.rc for key in keys if isinstance(key, Disconnect)]
    return CLOSED in keys and codes == ([] if rc is None else [rc])


def ended_otherwise(ours: int, theirs: int | None, *heads: int) -> Callable[[Difference], bool]:
    """Return a test: both end the client of the last step, with these reason codes; it has sent a packet with one of the first bytes."""
    def test(difference: Difference) -> bool:
        keys = difference.of_sender()
        asked = not heads or any(data[0] in heads for data in sent(difference))
        return keys is not None and closes(keys[0], ours) and closes(keys[1], theirs) and len(difference.differing()) == 1 and asked
    return test


def added(longer: list[Any], shorter: list[Any]) -> list[Any] | None:
    """Return what the longer list has in addition to the shorter one, in order; None if it is no such addition."""
    rest, extra = _without_ids(shorter), []
    for key in _without_ids(longer):
        if rest and rest[0] == key:
            rest.pop(0)
        else:
            extra.append(key)
    return None if rest else extra


def _without_ids(keys: list[Any]) -> list[Any]:
    return [replace(key, mid=0) if isinstance(key, Publish) else key for key in keys]


def publishes(keys: list[Any] | None) -> list[Publish]:
    """Return the keys if all of them are messages."""
    return [*keys] if keys and all(isinstance(key, Publish) for key in keys) else []


def own_will(difference: Difference) -> bool:
    """Return True if Mosquitto has sent each client that differs its own will before it closed the connection."""
    wills = [bytes.fromhex(step[4]) for step in difference.steps if step[0] == "open"]
    for ours, theirs in difference.differing():
        extra = publishes(added(theirs, ours))
        if CLOSED not in ours or not extra or not all(any(key.payload in will for will in wills) for key in extra):
            return False
    return True


def will_of_taken_session(difference: Difference) -> bool:
    """Return True if mosq has sent the will of a 5.0 client whose session another connection continues."""
    last, clients = difference.steps[-1], difference.differing()
    if last[0] != "open":
        return False
    wills = [bytes.fromhex(step[4]) for step in difference.steps[:-1] if step[0] == "open" and step[2] == 5 and step[3] == last[3]]
    extra = [publishes(added(ours, theirs)) for ours, theirs in clients]
    return all(keys and all(any(key.payload in will for will in wills) for key in keys) for keys in extra)


def sent(difference: Difference) -> list[bytes]:
    """Return the packets of the last step."""
    last = difference.steps[-1]
    return frames(bytes.fromhex(last[2])) if last[0] == "send" else []


def retained_and_no_local(difference: Difference) -> bool:
    """Return True if Mosquitto has sent more retained messages after a SUBSCRIBE with No Local."""
    keys = difference.of_sender()
    extra = publishes(added(keys[1], keys[0])) if keys else []
    asked = any(data[0] == 0x82 and data[-1] & 4 for data in sent(difference))
    return bool(extra) and asked and all(key.retain for key in extra)


def odd_share(difference: Difference) -> bool:
    """Return True if a SUBSCRIBE has a shared subscription without a valid group."""
    odd = (b"\0\x06$share", b"\0\x08$share/g", b"$share//", b"$share/+/")
    return difference.of_sender() is not None and any(data[0] in (0x82, 0xA2) and any(text in data for text in odd) for data in sent(difference))


def one_copy(difference: Difference) -> bool:
    return difference.config == "single" and any(isinstance(key, Publish) for pair in difference.differing() for keys in pair for key in keys)


def answers_before_an_error(difference: Difference) -> bool:
    """Return True if the brokers have answered a different number of the packets before the one that made them end the connection."""
    keys = difference.of_sender()
    return len(sent(difference)) > 1 and keys is not None and all(CLOSED in some for some in keys) and added(*keys) is not None


def receive_maximum(difference: Difference) -> bool:
    keys = difference.of_sender()
    refused = [key for key in (keys[1] if keys else []) if isinstance(key, Puback | Pubrec) and key.rc == 0x97]
    return keys is not None and (closes(keys[0], 0x93) or bool(refused))


def will_of_a_refused_client(difference: Difference) -> bool:
    """Return True if Mosquitto has sent only more wills of 3.x clients, perhaps retained ones after a SUBSCRIBE."""
    wills = [bytes.fromhex(step[4]) for step in difference.steps if step[0] == "open" and step[2] < 5]
    extra = [publishes(added(theirs, ours)) for ours, theirs in difference.differing()]
    return all(keys and all(any(key.payload in will for will in wills) for key in keys) for keys in extra)


def only_session_present(difference: Difference) -> bool:
    """Return True if the brokers differ only in Session Present, which Mosquitto has set."""
    ours, theirs = difference.of_sender() or ([], [])
    return [replace(key, session=True) if isinstance(key, Connack) else key for key in ours] == theirs


def refused_keepalive(difference: Difference) -> bool:
    """Return True if mosq has refused a 3.x client before it ended the client's former connection."""
    last = difference.steps[-1]
    if difference.config != "keepalive":
        return False
    if will_of_a_refused_client(difference):
        return True
    if last[0] != "open":
        return False
    if difference.of_sender() is not None:      # a refused CONNECT has left a session
        before = any(step[0] == "open" and step[2] < 5 and step[3] == last[3] for step in difference.steps[:-1])
        return before and only_session_present(difference)
    [first, *_] = [item.key for item in difference.ours[last[1]]]
    return isinstance(first, Connack) and first.rc == 2 and all(added(theirs, ours) is not None for ours, theirs in difference.differing())


def several_errors(difference: Difference) -> bool:
    """Return True if both have refused a CONNECT, one of them without a packet or with another reason code."""
    keys = difference.of_sender()
    if keys is None or difference.steps[-1][0] != "open":
        return False
    return all(CLOSED in some and not any(isinstance(key, Connack) and key.rc == 0 for key in some) for some in keys)


def plus_before_hash(difference: Difference) -> bool:
    """Return True if mosq has sent retained messages of the level of the + in a filter that ends with +/#."""
    keys = difference.of_sender()
    extra = publishes(added(*keys)) if keys else []
    return bool(extra) and all(key.retain for key in extra) and any(data[0] == 0x82 and b"/+/#" in data for data in sent(difference))


def copies_over_the_window(difference: Difference) -> bool:
    """Return True if Mosquitto has sent more copies of a message of QoS 1 or 2 than mosq, to clients with a small window."""
    for ours, theirs in difference.differing():
        if difference.peer == "2.0" and added(theirs, ours) is None:     # it drops copies that would have to wait
            ours, theirs = theirs, ours
        extra = publishes(added(theirs, ours))
        counts = Counter((key.topic, key.payload) for key in theirs if isinstance(key, Publish) and key.qos)
        if not extra or not all(key.qos and counts[key.topic, key.payload] > 1 for key in extra):
            return False
    return True


def order_of_copies(difference: Difference) -> bool:
    """Return True if both have sent the same messages, in other copies: their order differs, so others of them wait or are lost."""
    def messages(keys: list[Any]) -> list[Any]:
        return [(key.topic, key.payload) if isinstance(key, Publish) else key for key in keys]
    return all(messages(ours) == messages(theirs) for ours, theirs in difference.differing()) and bool(difference.differing())


def retained_and_share(difference: Difference) -> bool:
    """Return True if Mosquitto 2.0 has sent retained messages for a shared subscription."""
    keys = difference.of_sender()
    extra = publishes(added(keys[1], keys[0])) if keys else []
    return bool(extra) and all(key.retain for key in extra) and any(data[0] == 0x82 and b"$share/" in data for data in sent(difference))


def retained_that_wait(difference: Difference) -> bool:
    """Return True if the window of the client is small, so retained messages wait in mosq or are dropped by Mosquitto."""
    ours, theirs = difference.of_sender() or ([], [])
    extra = publishes(added(theirs, ours)) or publishes(added(ours, theirs))
    return bool(extra) and all(key.retain for key in extra) and any(data[0] == 0x82 for data in sent(difference)) and small_window(difference)


def small_window(difference: Difference) -> bool:
    """Return True if few messages may be in flight to the client of the last step."""
    opened = [step for step in difference.steps if step[0] == "open" and step[1] == difference.steps[-1][1]]
    small = (b"\x21\0\1", b"\x21\0\2")
    return difference.config in ("tight", "bytes") or (bool(opened) and any(prop in bytes.fromhex(opened[-1][4]) for prop in small))


def accepted_by_2_0(difference: Difference) -> bool:
    """Return True if mosq has ended the client for one packet that Mosquitto 2.0 has accepted."""
    keys = difference.of_sender()
    return keys is not None and len(sent(difference)) == 1 and CLOSED in keys[0] and CLOSED not in keys[1]


def third_copy(difference: Difference) -> bool:
    """Return True if Mosquitto has ended a client that sent a QoS 2 message again."""
    keys = difference.of_sender()
    return keys is not None and CLOSED not in keys[0] and CLOSED in keys[1] and any(data[0] & 0xFC == 0x3C for data in sent(difference))


RULES: tuple[Rule, ...] = (
    Rule("answers to the packets before one that ends the connection, if they come together", answers_before_an_error),
    Rule("receive maximum exceeded (5.0)", receive_maximum),
    Rule("a CONNECT that is refused because of its keepalive (3.x)", refused_keepalive),
    Rule("the order of the copies of one message", order_of_copies),
    Rule("retained messages for a new shared subscription", retained_and_share, ("2.0",)),
    Rule("retained messages for a new subscription", retained_that_wait),
    Rule("malformed packets that 2.0.11 accepts", accepted_by_2_0, ("2.0",)),
    Rule("copies of one message, beyond the client's window", copies_over_the_window),
    Rule("the third copy of a QoS 2 message on one connection, before PUBREL (3.x)", third_copy),
    Rule("a CONNECT with several errors", several_errors),
    Rule("retained messages for a filter that ends with `+/#`", plus_before_hash),
    Rule("SUBSCRIBE with a filter that is not valid (5.0)", ended_otherwise(0x81, None)),
    Rule("SUBSCRIBE with QoS 3, retain handling 3 or no filter; UNSUBSCRIBE without a filter (5.0)", ended_otherwise(0x82, 0x81, 0x82, 0xA2)),
    Rule("PUBLISH without topic and topic alias (5.0)", ended_otherwise(0x82, 0x81, *range(0x30, 0x40))),
    Rule("DISCONNECT with reserved flags (5.0)", ended_otherwise(0x81, 0x82, *range(0xE1, 0xF0))),
    Rule("a client's own will, where its connection ends by a take-over or an error", own_will),
    Rule("will of a 5.0 client whose session another connection takes over and continues", will_of_taken_session),
    Rule("retained messages and No Local (5.0)", retained_and_no_local),
    Rule("a shared subscription without a valid group (`$share//a`, `$share/+/a`, `$share/g`), and the filter `$share`", odd_share),
    Rule("overlapping subscriptions under `allow_duplicate_messages false`", one_copy),
    Rule("PUBLISH with a topic alias that is not set (5.0)", ended_otherwise(0x82, None)),
)


def rule_of(difference: Difference) -> Rule | None:
    return next((rule for rule in RULES if difference.peer in rule.peers and rule.explains(difference)), None)
