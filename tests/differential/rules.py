"""Define the differences that are known: each rule names the row of docs/differences.md (its first cell) that documents it.

A rule looks at the packets, the options and the history that its row is about, and at the shape of the difference. A session ends at
a known difference after which the brokers are in different states, and goes on otherwise.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.differential.asked import RECEIVED, RELEASED, packets_of, read_asked
from tests.differential.heard import CLOSED
from tests.differential.shadow import (
    DELAYED_WILL, FAULT, KEEPALIVE, ODD_DISCONNECT, OPTIONS, OTHER_USER, QUEUED_QOS0, RETAINED, TAKEN_WILL, UNRELEASED_3, UNRELEASED_5, Connection, Heard, Shadow,
    filters_before_a_fault, is_filter,
)
from tests.fuzz.sessions.checks import matches
from tests.fuzz.sessions.maker import Step
from tests.harness.packets import Connack, Disconnect, Puback, Publish, Pubrec, Pubrel, Subscribe, Unsuback, Unsubscribe
from tests.harness.properties import P

Keys = list[Any]


@dataclass(frozen=True)
class Difference:
    """A step after which the two brokers have sent something different, or are in different states."""

    peer: str               # "2.0" or "2.1"
    config: str             # name of the configuration
    steps: list[Step]       # the steps so far; the last one made the difference
    ours: Heard
    theirs: Heard
    step: Step              # the last step, as it was played
    shadow: Shadow
    rows: tuple[str, ...] = ()      # of the differences in state that the step makes

    def differing(self) -> dict[int, tuple[Keys, Keys]]:
        """Return what each client that differs has received: (ours, theirs)."""
        both = {n: ([item.key for item in self.ours.get(n, [])], [item.key for item in self.theirs.get(n, [])]) for n in {*self.ours, *self.theirs}}
        return {n: pair for n, pair in both.items() if pair[0] != pair[1]}

    def of_sender(self) -> tuple[Keys, Keys] | None:
        """Return what the client of the last step has received (ours, theirs), if no other client differs."""
        found = self.differing()
        return found[self.step[1]] if list(found) == [self.step[1]] else None

    @property
    def sender(self) -> Connection:
        return self.shadow.connections[self.step[1]]

    def sent(self) -> list[bytes]:
        """Return the packets of the last step, without a CONNECT."""
        return packets_of(self.step) if self.step[0] == "send" else []

    def asked(self) -> list[Any]:
        """Return the valid packets of the last step, without a CONNECT."""
        return [read_asked(self.sender.level, data) for data in self.sent()]


@dataclass(frozen=True)
class Rule:
    row: str
    explains: Callable[[Difference], bool]
    peers: tuple[str, ...] = ("2.0", "2.1")
    goes_on: bool = False       # the brokers are in the same state


TAKE_OVER = "a 5.0 client that is taken over"      # row of docs/differences.md


def without_take_over(heard: Heard) -> Heard:
    """Leave out DISCONNECT 0x8E, which Mosquitto 2.0 does not send. Take-overs are frequent, so the session goes on."""
    return {n: [item for item in items if not (isinstance(item.key, Disconnect) and item.key.rc == 0x8E)] for n, items in heard.items()}


# ---------------------------------------------------------------- shapes

def closes(keys: Keys, rc: int | None) -> bool:
    """Return True if the broker has ended a connection, with this reason code in DISCONNECT; None: without DISCONNECT."""
    codes = [key.rc for key in keys if isinstance(key, Disconnect)]
    return CLOSED in keys and codes == ([] if rc is None else [rc])


def added(longer: Keys, shorter: Keys) -> Keys | None:
    """Return what the longer list has in addition to the shorter one, in order; None if it is no such addition."""
    rest, extra = _without_ids(shorter), []
    for key in _without_ids(longer):
        if rest and rest[0] == key:
            rest.pop(0)
        else:
            extra.append(key)
    return None if rest else extra


def more_of(some: Keys, others: Keys) -> Keys:
    """Return what the first list has more often than the second one, without regard to the order."""
    rest = Counter(map(repr, others))
    extra = []
    for key in some:
        rest[repr(key)] -= 1
        if rest[repr(key)] < 0:
            extra.append(key)
    return extra


def _without_ids(keys: Keys) -> Keys:
    return [replace(key, mid=0) if isinstance(key, Publish | Pubrel) else key for key in keys]


def publishes(keys: Keys | None) -> list[Publish]:
    """Return the keys if all of them are messages."""
    return [*keys] if keys and all(isinstance(key, Publish) for key in keys) else []


def more_in(longer: Keys, shorter: Keys) -> list[Publish]:
    """Return the messages that the longer list has in addition; [] if anything else differs."""
    return publishes(added(longer, shorter))


def retained_and_live(keys: Keys) -> tuple[Keys, Keys]:
    """Return the messages with RETAIN, and all other packets."""
    is_retained = [isinstance(key, Publish) and key.retain for key in keys]
    return [key for key, kept in zip(keys, is_retained, strict=True) if kept], [key for key, kept in zip(keys, is_retained, strict=True) if not kept]


def more_in_parts(longer: Keys, shorter: Keys) -> list[Publish]:
    """Return the messages that the longer list has in addition, if those with RETAIN have no place among the others (heard.py)."""
    found = [added(*pair) for pair in zip(retained_and_live(longer), retained_and_live(shorter), strict=True)]
    return publishes([key for extra in found for key in extra or []]) if None not in found else []


def more_copies(longer: Keys, shorter: Keys) -> list[Publish]:
    """Return the messages that the longer list has in addition; the copies of these messages may have other places in it."""
    if found := more_in(longer, shorter):
        return found
    both = _without_ids(longer), _without_ids(shorter)
    extra = publishes(more_of(*both))
    copied = {(key.topic, key.payload) for key in extra}
    rest = [[key for key in keys if not (isinstance(key, Publish) and (key.topic, key.payload) in copied)] for keys in both]
    return extra if rest[0] == rest[1] and not more_of(both[1], both[0]) else []


def accepted(keys: Keys) -> bool:
    return bool(keys) and isinstance(keys[0], Connack) and keys[0].rc == 0


def ended_otherwise(ours: int, theirs: int | None, *heads: int) -> Callable[[Difference], bool]:
    """Return a test: both end the client of the last step, with these reason codes; it has sent a packet with one of the first bytes."""
    def test(difference: Difference) -> bool:
        keys = difference.of_sender()
        asked = not heads or any(data[0] in heads for data in difference.sent())
        return keys is not None and closes(keys[0], ours) and closes(keys[1], theirs) and asked
    return test


# ---------------------------------------------------------------- packets that end a connection

def answers_before_an_error(difference: Difference) -> bool:
    """Return True if Mosquitto has dropped answers to the packets before the one that made both end the connection."""
    keys = difference.of_sender()
    return len(difference.sent()) > 1 and keys is not None and all(CLOSED in some for some in keys) and added(*keys) is not None


def accepted_by_2_0(difference: Difference) -> bool:
    """Return True if mosq has ended the client for one malformed packet that Mosquitto 2.0 has accepted."""
    n, step = difference.step[1], difference.step
    ours, theirs = difference.differing().get(n, ([], []))
    malformed = [data for data in packets_of(step) if read_asked(difference.sender.level, data) is None]
    return len(malformed) == len(packets_of(step)) == 1 and CLOSED in ours and CLOSED not in theirs


def odd_publish(difference: Difference) -> bool:
    """Return True if mosq has ended a 5.0 client for the properties of a PUBLISH, and Mosquitto 2.0 has accepted them."""
    props = [prop for packet in difference.asked() if isinstance(packet, Publish) for prop in packet.props]
    ours = [item.key for item in difference.ours.get(difference.step[1], [])]
    return any(map(odd_property, props)) and closes(ours, 0x82) and ended_by_one(difference)[0]


def odd_property(prop: tuple[int, Any]) -> bool:
    """Return whether a message or will of a client cannot have this property, or this value of it."""
    ident, value = prop
    return ((ident == P.PAYLOAD_FORMAT and value not in (0, 1)) or ident == P.SUBSCRIPTION_ID
            or (ident == P.RESPONSE_TOPIC and bool(set(str(value)) & set("+#"))))


def odd_will(difference: Difference) -> bool:
    """Return True if mosq has refused a CONNECT of 5.0 for the properties of its will, and Mosquitto 2.0 has accepted it."""
    connect = difference.sender.connect
    ours, theirs = difference.differing().get(difference.step[1], ([], []))
    refused = any(isinstance(key, Connack) and key.rc == 0x82 for key in ours)
    will = connect.will if difference.step[0] == "open" and connect is not None else None
    return will is not None and any(map(odd_property, will.props)) and refused and accepted(theirs)


def third_copy(difference: Difference) -> bool:
    """Return True if Mosquitto has ended a 3.x client that sent a QoS 2 message again."""
    again = any(isinstance(packet, Publish) and packet.qos == 2 and packet.dup for packet in difference.asked())
    return again and difference.sender.level < 5 and ended_by_one(difference)[1]


def ended_by_one(difference: Difference) -> tuple[bool, bool]:
    """Return whether only mosq, or only Mosquitto, has ended the client of the last step. Other clients may have got its will from
    this broker, and from the other one what the step has published: with the packet that ended the client, and behind it."""
    n, will = difference.step[1], difference.sender.will
    pairs = difference.differing()
    ours, theirs = (CLOSED in keys for keys in pairs.get(n, ([], [])))
    if ours == theirs:
        return False, False
    sent = ({will.payload} if will else set(), difference.shadow.published)
    for client, pair in pairs.items():
        ended, lives = (_without_ids(keys) for keys in (pair if ours else reversed(pair)))
        extra = more_of(ended, lives), more_of(lives, ended)
        if client != n and not all(isinstance(key, Publish) and key.payload in payloads for keys, payloads in zip(extra, sent, strict=True) for key in keys):
            return False, False
    return ours, theirs


def several_errors(difference: Difference) -> bool:
    """Return True if both have refused a CONNECT, one of them without a packet or with another reason code."""
    keys = difference.of_sender()
    if keys is None or difference.step[0] != "open" or not all(CLOSED in some and not accepted(some) for some in keys):
        return False
    codes = [[key.rc if isinstance(key, Connack) else key for key in some] for some in keys]
    return codes[0] != codes[1]


def several_errors_in_an_ack(difference: Difference) -> bool:
    """Return True if an acknowledgement has a reason code and properties that are not valid, and both have named one of these errors."""
    both = [data for data in difference.sent() if data[0] >> 4 in (4, 5, 6, 7) and len(data) > 5 and data[4] not in RECEIVED | RELEASED]
    keys = difference.of_sender() or ([], [])
    return bool(both) and None in difference.asked() and any(closes(keys[0], ours) and closes(keys[1], 0x81 + (ours == 0x81)) for ours in (0x81, 0x82))


def cut_password(difference: Difference) -> bool:
    """Return True if Mosquitto has accepted a CONNECT of 3.1 whose user name or password runs over the end of the packet."""
    n, step = difference.step[1], difference.step
    ours, theirs = difference.differing().get(n, ([], []))
    return step[0] == "open" and difference.sender.level == 3 and difference.sender.connect is None and not accepted(ours) and accepted(theirs)


def repeated_request(difference: Difference) -> bool:
    """Return True if Mosquitto has ended a 3.1 client for the flag DUP of a SUBSCRIBE, UNSUBSCRIBE or PUBREL."""
    return difference.sender.level == 3 and any(data[0] in (0x8A, 0xAA, 0x6A) for data in difference.sent()) and ended_by_one(difference)[1]


def odd_share(difference: Difference) -> bool:
    """Return True if a SUBSCRIBE or UNSUBSCRIBE has a shared filter without a valid group, or the filter $share."""
    asked = [packet for packet in difference.asked() if isinstance(packet, Subscribe | Unsubscribe)]
    filters = [one if isinstance(one, str) else one[0] for packet in asked for one in packet.filters]
    odd = any(one.split("/")[0] == "$share" and not is_filter(one) for one in filters)
    fault = rb"\x00\x06\$share|\x00.\$share/(/|[^/]*[+#])"
    odd |= None in difference.asked() and any(re.search(fault, data, re.DOTALL) for data in difference.sent())       # with another fault behind it
    keys = difference.of_sender()
    both = keys is not None and all(CLOSED in some for some in keys)
    return odd and (both or any(ended_by_one(difference)))


def never_subscribed(difference: Difference) -> bool:
    """Return True if Mosquitto has named success for an UNSUBSCRIBE of filters that begin with $, without such a subscription."""
    keys = difference.of_sender()
    asked = any(one.startswith("$") for packet in difference.asked() if isinstance(packet, Unsubscribe) for one in packet.filters)
    if keys is None or not asked:
        return False
    ours, theirs = ([replace(key, codes=()) if isinstance(key, Unsuback) else key for key in some] for some in keys)
    return ours == theirs


def unset_alias(difference: Difference) -> bool:
    asked = [packet for packet in difference.asked() if isinstance(packet, Publish) and not packet.topic]
    return any(P.TOPIC_ALIAS in dict(packet.props) for packet in asked) and ended_otherwise(0x82, None, *range(0x30, 0x40))(difference)


def malformed(difference: Difference) -> bool:
    """Return True if a 5.0 client has sent a malformed packet, or an invalid filter, and Mosquitto has closed without a packet."""
    asked = difference.asked()
    requests = [packet for packet in asked if isinstance(packet, Subscribe | Unsubscribe)]
    invalid = any(not is_filter(one if isinstance(one, str) else one[0]) for packet in requests for one in packet.filters)
    return (None in asked or invalid) and ended_otherwise(0x81, None)(difference)


def other_reason(difference: Difference) -> bool:
    """Return True if Mosquitto 2.0 has ended a 5.0 client without a packet, or with another reason code."""
    ours, theirs = difference.of_sender() or ([], [])
    return difference.sender.level == 5 and CLOSED in ours and more_errors(ours) == more_errors(theirs)


def more_errors(keys: Keys) -> Keys:
    return [key for key in keys if not isinstance(key, Disconnect)]


def default_keepalive(difference: Difference) -> bool:
    """Return True if Mosquitto 2.0 has set a Server Keep Alive of 65535 for a client that has asked for none."""
    ours, theirs = difference.of_sender() or ([], [])
    if not accepted(ours) or not accepted(theirs) or difference.sender.connect is None or difference.sender.connect.keepalive:
        return False
    return [replace(key, props=tuple(one for one in key.props if one != (P.SERVER_KEEPALIVE, 0xFFFF))) if isinstance(key, Connack) else key for key in theirs] == ours


def before_a_fault(difference: Difference) -> bool:
    """Return True if Mosquitto has subscribed the filters in front of a fault: it has sent their retained messages, or the own will."""
    keys = difference.of_sender()
    faulty = any(filters_before_a_fault(difference.sender.level, data) for data in difference.sent())
    if keys is None or not faulty or not all(CLOSED in some for some in keys):
        return False
    will = difference.sender.will
    return all(key.retain or (will and key.payload == will.payload) for key in more_in(keys[1], keys[0]) or [Publish("")])


# ---------------------------------------------------------------- wills and take-overs

def own_will(difference: Difference) -> bool:
    """Return True if clients differ in their own wills only, which Mosquitto has sent before it closed the connection, or has
    counted as sent and sends again to the next connection."""
    for n, (ours, theirs) in difference.differing().items():
        will = difference.shadow.connections[n].will
        wills = {*difference.shadow.session(n).wills, *([will.payload] if will else [])}
        rest = [[key for key in _without_ids(keys) if not (isinstance(key, Publish) and key.payload in wills)] for keys in (ours, theirs)]
        last = CLOSED in ours or (difference.step[0] == "open" and difference.step[1] == n)
        if not last or rest[0] != rest[1]:
            return False
    return True


def will_of_taken_session(difference: Difference) -> bool:
    """Return True if mosq has sent the will of the 5.0 client whose session the last step continues or ends."""
    former = difference.shadow.former
    wills = [difference.shadow.delayed, former.will.payload if former and former.will else b""]
    extra = [more_in(ours, theirs) or more_in_parts(ours, theirs) for ours, theirs in difference.differing().values()]
    return all(keys and all(key.payload and key.payload in wills for key in keys) for keys in extra)


def refused_keepalive(difference: Difference) -> bool:
    """Return True if both have refused a 3.x client for its keepalive, and Mosquitto has ended the client's former connection, or
    sent a will of the client."""
    former = difference.shadow.former
    ours, theirs = ([item.key for item in side.get(difference.step[1], [])] for side in (difference.ours, difference.theirs))
    if [replace(key, session=False) if isinstance(key, Connack) else key for key in theirs] != ours:
        return False        # Session Present may be set in Mosquitto's refusal
    wills = [one.connect.will.payload for one in (former, difference.sender) if one and one.connect and one.connect.will]
    for n, (ours, theirs) in difference.differing().items():
        extra = added(theirs, ours) if n != difference.step[1] else [CLOSED]
        if not extra or not all(key == CLOSED or isinstance(key, Disconnect) or (isinstance(key, Publish) and key.payload in wills) for key in extra):
            return False
    return True


def resumed_with_less(difference: Difference) -> bool:
    """Return True if Mosquitto has sent again more messages than the Receive Maximum of the client that resumes a session. QoS 0 messages
    that were queued come behind these, and wait in mosq."""
    keys = difference.differing().get(difference.step[1])
    if keys is None or difference.step[0] != "open" or difference.sender.window >= 20 or len(difference.differing()) > 1:
        return False
    extra = added(keys[1], keys[0])
    queued = QUEUED_QOS0 in difference.rows
    return any(isinstance(key, Pubrel) or key.dup for key in extra or []) and all(
        isinstance(key, Pubrel) or (isinstance(key, Publish) and (key.dup or (queued and key.qos == 0))) for key in extra or [])


# ---------------------------------------------------------------- delivery

def unreleased(difference: Difference) -> bool:
    """Return True if a client has sent QoS 1 or 2 although too many of its QoS 2 messages wait for PUBREL. At QoS 2 mosq ends a 5.0
    client; otherwise it accepts the messages, and Mosquitto refuses (5.0) or drops them."""
    if closes([item.key for item in difference.ours.get(difference.step[1], [])], 0x93):
        return difference.sender.level == 5 and ended_by_one(difference)[0]
    published = difference.shadow.published
    for n, (ours, theirs) in difference.differing().items():
        if n == difference.step[1]:
            refused = {(type(key), key.mid) for key in theirs if isinstance(key, Puback | Pubrec) and key.rc == 0x97}
            ours, theirs = ([key for key in keys if (type(key), getattr(key, "mid", 0)) not in refused] for keys in (ours, theirs))
        more, others = more_of(_without_ids(ours), _without_ids(theirs)), more_of(_without_ids(theirs), _without_ids(ours))
        in_place = not others or (bool(more) and difference.shadow.window_was_full(n))      # another message has the place of a dropped one
        if not in_place or not all(isinstance(key, Publish) and key.payload in published for key in (*more, *others)):
            return False
    return True


def retained_and_no_local(difference: Difference) -> bool:
    """Return True if Mosquitto has sent a client its own retained messages after a SUBSCRIBE with No Local; in a full window they take the
    places of others. The retained messages may come in any order."""
    ours, theirs = difference.of_sender() or ([], [])
    asked = any(flags & 4 for packet in difference.asked() if isinstance(packet, Subscribe) for _, flags in packet.filters)
    kept, live = zip(retained_and_live(ours), retained_and_live(theirs), strict=True)
    kept = [_without_ids(keys) for keys in kept]
    extra, missing = more_of(kept[1], kept[0]), more_of(kept[0], kept[1])
    own = difference.shadow.sources.get(difference.sender.client_id, set())
    if not asked or difference.sender.level < 5 or not extra or not all(key.payload in own for key in extra):
        return False
    n = difference.step[1]
    full = difference.shadow.window_is_full_in_theirs(n, difference.ours.get(n, []), difference.theirs.get(n, []))
    return (not missing or full) and (added(*live) == [] or (full and bool(more_in(*live))))


def without_own_retained(difference: Difference) -> Difference | None:
    """Leave out the own retained messages that only Mosquitto has sent to a client after a SUBSCRIBE with No Local; None: there are none."""
    n = difference.step[1]
    asked = any(flags & 4 for packet in difference.asked() if isinstance(packet, Subscribe) for _, flags in packet.filters)
    if not asked or difference.sender.level < 5:
        return None
    own = difference.shadow.sources.get(difference.sender.client_id, set())
    counts = Counter(repr(key) for key in _without_ids([item.key for item in difference.ours.get(n, [])]))
    rest = []
    for item in difference.theirs.get(n, []):
        if isinstance(item.key, Publish) and item.key.retain and item.key.payload in own:
            [key] = _without_ids([item.key])
            counts[repr(key)] -= 1
            if counts[repr(key)] < 0:
                continue
        rest.append(item)
    found = len(rest) < len(difference.theirs.get(n, []))
    return replace(difference, theirs={**difference.theirs, n: rest}) if found else None


def retained_that_wait(difference: Difference) -> bool:
    """Return True if the client's window is full, so retained messages wait in mosq, in its order, behind live ones; Mosquitto sends them
    in front of live ones, queues or drops them."""
    ours, theirs = difference.of_sender() or ([], [])
    asked = any(isinstance(packet, Subscribe) for packet in difference.asked())
    live = [retained_and_live(keys)[1] for keys in (ours, theirs)]
    earlier = added(live[0], live[1])
    if not asked or earlier is None or not all(isinstance(key, Publish) and key.qos for key in earlier):
        return False
    return len(ours) > len(live[0]) or len(theirs) > len(live[1])       # retained messages are there


def plus_before_hash(difference: Difference) -> bool:
    """Return True if mosq has sent retained messages of the level of the + in a filter that ends with +/#."""
    keys = difference.of_sender()
    filters = [one for packet in difference.asked() if isinstance(packet, Subscribe) for one, _ in packet.filters if one.endswith("/+/#")]
    if keys is None or not filters:
        return False
    levels = {one.count("/") - 1 for one in filters}        # of the topics at the level of the +
    extra = more_in(*keys)
    if extra:
        return all(key.retain and key.topic.count("/") in levels for key in extra)
    # these messages have taken the places of others in a full window
    first = next((a for a, b in zip(*map(_without_ids, keys), strict=False) if a != b), None)
    found = any(isinstance(key, Publish) and key.retain and key.topic.count("/") in levels for key in keys[0])
    return found and isinstance(first, Publish) and first.retain and difference.shadow.window_was_full(difference.step[1])


def copies_over_the_window(difference: Difference) -> bool:
    """Return True if Mosquitto has sent more copies of a message of QoS 1 or 2 than mosq, to clients with a full window."""
    for n, (ours, theirs) in difference.differing().items():
        if difference.peer == "2.0" and not more_copies(theirs, ours):      # it drops copies that would have to wait
            ours, theirs = theirs, ours
        extra = more_copies(theirs, ours)
        counts = Counter((key.topic, key.payload) for key in theirs if isinstance(key, Publish) and key.qos)
        if not difference.shadow.window_was_full(n) or not extra or not all(key.qos and counts[key.topic, key.payload] > 1 for key in extra):
            return False
    return True


def order_of_copies(difference: Difference) -> bool:
    """Return True if both have sent the same messages, in other copies: their order differs, so others of them wait, and a place in a
    full window is free before or after another PUBREL. Copies with RETAIN have no place of their own among the others (heard.py)."""
    def content(key: Publish) -> tuple[str, bytes]:
        return key.topic, key.payload

    def same(ours: Keys, theirs: Keys) -> bool:
        moved = {content(key) for key in (*ours, *theirs) if isinstance(key, Publish) and key.retain}
        counts = [Counter(content(key) for key in keys if isinstance(key, Publish)) for keys in (ours, theirs)]
        places = [[content(key) for key in keys if isinstance(key, Publish) and content(key) not in moved] for keys in (ours, theirs)]
        others = [[key for key in keys if not isinstance(key, Publish)] for keys in (ours, theirs)]
        return counts[0] == counts[1] and places[0] == places[1] and others[0] == others[1]

    return all(same(ours, theirs) and difference.shadow.window_became_full(n, ours) for n, (ours, theirs) in difference.differing().items())


def other_member(difference: Difference) -> bool:
    """Return True if the members of a shared group have got the same messages, but other members of the group than in Mosquitto."""
    pairs = difference.differing()
    moved: list[Counter[tuple[str, bytes]]] = [Counter(), Counter()]
    groups: dict[str, set[int]] = {}        # by topic of such a message: the clients that have it in one broker only
    for n, (ours, theirs) in pairs.items():
        both = _without_ids(ours), _without_ids(theirs)
        more = more_of(both[0], both[1]), more_of(both[1], both[0])
        extra = [*more[0], *more[1]]
        rest = [[key for key in keys if key not in extra] for keys in both]
        if not extra or not all(isinstance(key, Publish) for key in extra) or rest[0] != rest[1]:
            return False
        for count, keys in zip(moved, more, strict=True):
            count.update((key.topic, key.payload) for key in keys)
            for key in keys:
                groups.setdefault(key.topic, set()).add(n)
    return moved[0] == moved[1] and all(_have_a_group(difference, topic, clients) for topic, clients in groups.items())


def _have_a_group(difference: Difference, topic: str, clients: set[int]) -> bool:
    """Return True if all of these clients, two or more, are members of a shared group whose filter matches the topic."""
    common = set.intersection(*(difference.shadow.session(n).shared for n in clients))
    return len(clients) > 1 and any(is_filter(one) and matches(one, topic) for one in common)


def one_copy(difference: Difference) -> bool:
    """Return True if the clients have got the same messages, in other numbers, with another QoS or with other identifiers. Where a
    window is full, the copies of Mosquitto, which are more, have taken other places in it."""
    def messages(keys: Keys) -> set[tuple[str, bytes]]:
        return {(key.topic, key.payload) for key in keys if isinstance(key, Publish)}

    def others(keys: Keys) -> Keys:
        return [key for key in keys if not isinstance(key, Publish)]

    return difference.config == "single" and all(
        others(ours) == others(theirs) and (messages(ours) == messages(theirs) or difference.shadow.window_was_full(n))
        for n, (ours, theirs) in difference.differing().items())


def other_user(difference: Difference) -> bool:
    """Return True if mosq has discarded a session that a client with another user name has asked for."""
    ours, theirs = difference.of_sender() or ([], [])
    return difference.shadow.other_user and accepted(ours) and accepted(theirs) and theirs[0].session and not ours[0].session


def sent_before(difference: Difference) -> bool:
    """Return True if Mosquitto 2.1 has queued more for an offline client, since it does not count what was sent before."""
    ours, theirs = difference.of_sender() or ([], [])
    extra = more_in(theirs, ours)
    again = any(isinstance(key, Pubrel) or (isinstance(key, Publish) and key.dup) for key in ours)
    return difference.step[0] == "open" and difference.shadow.queue_is_short() and again and bool(extra) and all(key.qos for key in extra)


def too_large(difference: Difference) -> bool:
    """Return True if a client's Maximum Packet Size is small, and Mosquitto has sent it less, or an alias that it does not know, or one
    byte too much."""
    for n, (ours, theirs) in difference.differing().items():
        most = difference.shadow.connections[n].prop(P.MAXIMUM_PACKET_SIZE, 0)
        if not 0 < most < 1000:
            return False
        if more_in(theirs, ours) and any(len(item.raw) == most + 1 for item in difference.theirs[n]):
            continue
        unknown = any(isinstance(key, Publish) and key.topic.startswith("unknown alias") for key in theirs)
        extra = more_in(ours, theirs)
        if not unknown and not (extra and all(key.qos for key in extra)):
            return False
    return True


def odd_acks(difference: Difference) -> bool:
    """Return True if Mosquitto has more messages in flight, or earlier, to clients that have acknowledged something twice, or a wrong packet id."""
    return all(difference.shadow.connections[n].odd_acks and sent_earlier(theirs, ours, difference.shadow.window_was_full(n))
               for n, (ours, theirs) in difference.differing().items())


def sent_earlier(more: Keys, fewer: Keys, full: bool) -> bool:
    """Return True if two lists have the same packets in another order, or the first one has further messages of QoS 1 or 2. With a full
    window, other copies of the same messages may have the places in it, since the order of copies differs."""
    more, fewer = _without_ids(more), _without_ids(fewer)
    if full:
        more, fewer = ([replace(key, qos=1, retain=False, props=()) if isinstance(key, Publish) and key.qos else key for key in keys]
                       for keys in (more, fewer))
    return not more_of(fewer, more) and all(isinstance(key, Publish) and key.qos for key in more_of(more, fewer))


def refused_receipts(difference: Difference) -> bool:
    """Return True if Mosquitto has fewer messages in flight, or later, to 5.0 clients that have answered a QoS 2 message with an error."""
    return all(difference.shadow.connections[n].refused and sent_earlier(ours, theirs, difference.shadow.window_was_full(n))
               for n, (ours, theirs) in difference.differing().items())


def more_than_allowed(difference: Difference) -> bool:
    """Return True if Mosquitto 2.0 has sent more messages than may be in flight."""
    extra = [(n, more_copies(theirs, ours)) for n, (ours, theirs) in difference.differing().items()]
    return all(difference.shadow.window_was_full(n) and keys and all(key.qos for key in keys) for n, keys in extra)


def options_again(difference: Difference) -> bool:
    """Return True if a client differs in messages after it has changed No Local or Retain As Published."""
    ours, theirs = difference.of_sender() or ([], [])
    return bool(more_in(ours, theirs) or more_in(theirs, ours))


def queued_qos0(difference: Difference) -> bool:
    """Return True if Mosquitto has sent less to a client that resumes a session, since QoS 0 messages fill its window; or more QoS 0
    messages than max_queued_messages allows."""
    ours, theirs = difference.of_sender() or ([], [])
    return bool(more_in(ours, theirs)) or (difference.shadow.queue_is_short() and all(key.qos == 0 for key in more_in(theirs, ours) or [Publish("", qos=1)]))


def not_reloaded(difference: Difference) -> bool:
    """Return True if Mosquitto has sent more queued messages in a session in which a reload made max_queued_messages smaller."""
    extra = [more_copies(theirs, ours) for ours, theirs in difference.differing().values()]
    return "max_queued_messages" in difference.shadow.queue_options and difference.step[0] == "open" and all(extra)


def released_bytes(difference: Difference) -> bool:
    """Return True if mosq has sent more under max_inflight_bytes, since it does not count payloads whose PUBREC has come."""
    extra = [more_in(ours, theirs) for ours, theirs in difference.differing().values()]
    waits = all(difference.shadow.session(n).received for n in difference.differing())
    return waits and difference.shadow.limits.window_bytes > 0 and all(keys and all(key.qos for key in keys) for keys in extra)


RULES: tuple[Rule, ...] = (
    Rule("answers to the packets before one that ends the connection, if they come together", answers_before_an_error, goes_on=True),
    Rule(UNRELEASED_5, unreleased),
    Rule(UNRELEASED_3, unreleased),
    Rule(KEEPALIVE, refused_keepalive),
    Rule(FAULT, before_a_fault),
    Rule(TAKEN_WILL, will_of_taken_session),
    Rule(DELAYED_WILL, will_of_taken_session),
    Rule(OPTIONS, options_again, ("2.0",)),
    Rule(QUEUED_QOS0, queued_qos0),
    Rule("retained messages and No Local (5.0)", retained_and_no_local),
    Rule("retained messages for a filter that ends with `+/#`", plus_before_hash),
    Rule(RETAINED, retained_that_wait),
    Rule("the third copy of a QoS 2 message on one connection, before PUBREL (3.x)", third_copy),
    Rule("a packet with several errors", several_errors, goes_on=True),
    Rule("a packet with several errors", several_errors_in_an_ack, goes_on=True),
    Rule("CONNECT of 3.1 with a user name or password that runs over the end", cut_password),
    Rule("SUBSCRIBE, UNSUBSCRIBE and PUBREL with DUP (3.1)", repeated_request),
    Rule("PUBLISH with a subscription identifier, a response topic with wildcards, a payload format above 1", odd_publish, ("2.0",)),
    Rule("a will with a response topic with wildcards or a payload format above 1 (5.0)", odd_will, ("2.0",)),
    Rule("malformed packets that 2.0.11 accepts", accepted_by_2_0, ("2.0",)),
    Rule("a shared subscription without a valid group (`$share//a`, `$share/+/a`, `$share/g`), and the filter `$share`", odd_share),
    Rule("malformed packets and filters that are not valid (5.0)", malformed, goes_on=True),
    Rule("errors of 5.0 clients", other_reason, ("2.0",), goes_on=True),
    Rule("CONNECT without a keepalive (5.0)", default_keepalive, ("2.0",), goes_on=True),
    Rule("SUBSCRIBE with QoS 3, retain handling 3 or no filter; UNSUBSCRIBE without a filter (5.0)", ended_otherwise(0x82, 0x81, 0x82, 0xA2), goes_on=True),
    Rule("PUBLISH without topic and topic alias (5.0)", ended_otherwise(0x82, 0x81, *range(0x30, 0x40)), goes_on=True),
    Rule(ODD_DISCONNECT, ended_otherwise(0x81, 0x82, *range(0xE0, 0xF0)), goes_on=True),
    Rule("UNSUBSCRIBE of a filter that begins with `$` and has no subscription (5.0)", never_subscribed, goes_on=True),
    Rule("PUBLISH with a topic alias that is not set (5.0)", unset_alias, goes_on=True),
    Rule("a client's own will, where its connection ends by a take-over or an error", own_will),
    Rule("overlapping subscriptions under `allow_duplicate_messages false`", one_copy),
    Rule("a session that is resumed with a smaller Receive Maximum (5.0)", resumed_with_less),
    Rule("a message over the client's Maximum Packet Size", too_large),
    Rule("an acknowledgement of a packet id that is not in flight", odd_acks),
    Rule(OTHER_USER, other_user),
    Rule("`max_queued_messages`", sent_before, ("2.1",)),
    Rule("`max_queued_messages` at SIGHUP", not_reloaded),
    Rule("PUBREC with an error (5.0)", refused_receipts),
    Rule("member of a shared group for a message", other_member),
    Rule("the order of the copies of one message", order_of_copies),
    Rule("copies of one message, beyond the client's window", copies_over_the_window),
    Rule("copies of one message, beyond the client's window", more_than_allowed, ("2.0",)),
    Rule("QoS 2 messages between PUBREC and PUBCOMP, and `max_inflight_bytes`", released_bytes),
)


IN_STATE = (UNRELEASED_5, UNRELEASED_3, KEEPALIVE, TAKEN_WILL, DELAYED_WILL, OPTIONS, QUEUED_QOS0, RETAINED)


def rule_of(difference: Difference) -> Rule | None:
    """Return the rule that explains a difference, or explains a client of it if other rules explain the others. A client may have got its
    own retained messages, and differ in something else too."""
    if not difference.differing():
        return None
    rule = rule_of_clients(difference)
    if rule is None and (rest := without_own_retained(difference)) is not None and (rule := rule_of_clients(rest)) is not None:
        return replace(rule, goes_on=False)
    return rule


def rule_of_clients(difference: Difference) -> Rule | None:
    """Return the rule that explains a difference, or explains a client of it if other rules explain the others."""
    if (rule := rule_of_all(difference)) is not None:
        return rule
    parts = [replace(difference, ours={n: difference.ours.get(n, [])}, theirs={n: difference.theirs.get(n, [])}) for n in difference.differing()]
    rules = [rule_of_all(part) for part in parts]
    found = sorted((rule for rule in rules if rule is not None), key=lambda rule: rule.goes_on)
    return found[0] if len(found) == len(parts) else None


def rule_of_all(difference: Difference) -> Rule | None:
    """Return the rule that explains all of a difference. A row of a difference in state belongs to the steps in which `Shadow` finds it."""
    found = (rule for rule in RULES if difference.peer in rule.peers and (rule.row not in IN_STATE or rule.row in difference.rows))
    return next((rule for rule in found if rule.explains(difference)), None)
