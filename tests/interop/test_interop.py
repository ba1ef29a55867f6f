"""Test real clients with the broker: each common scenario with each client and version."""

from __future__ import annotations

import pytest

from tests.interop.clients import Message
from tests.interop.conftest import KINDS, Maker

NAMES = sorted(KINDS)
VERSIONS = (4, 5)


def rows(qos: tuple[int, ...] = (0, 1, 2), hard: tuple[bool, ...] = ()) -> pytest.MarkDecorator:
    """Parametrize with each client, version and QoS. `make test` runs one row of each client and version, and in another client another QoS."""
    found = []
    for n, (kind, version) in enumerate((kind, version) for kind in NAMES for version in VERSIONS):
        for i, (q, *more) in enumerate((q, *more) for q in qos for more in ([(h,) for h in hard] or [()])):
            ends = ["drop" if h else "disconnect" for h in more]
            marks = [pytest.mark.part("interop")] if (i - n) % (len(qos) * (len(hard) or 1)) else []
            found.append(pytest.param(kind, version, q, *more, id="-".join((*ends, str(q), str(version), kind)), marks=marks))
    return pytest.mark.parametrize(("kind", "version", "qos", *(["hard"] if hard else [])), found)


@rows()
def test_delivery(make: Maker, unique: str, kind: str, version: int, qos: int) -> None:
    sub = make(kind, version, "sub")
    sub.subscribe(f"{unique}/+/#", qos)
    pub = make(kind, version, "pub")
    sent = [Message(f"{unique}/a", "one", qos), Message(f"{unique}/a/ü", "grüße 𝄞", qos), Message(f"{unique}/b", "x" * 100_000, qos)]
    for message in sent:
        pub.publish(message)
    assert sub.take(3) == sent
    assert sub.left_over() == []


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("version", VERSIONS)
def test_many_in_order(make: Maker, unique: str, kind: str, version: int) -> None:
    sub = make(kind, version, "sub")
    sub.subscribe(unique, 2)
    pub = make("paho", version, "pub")
    sent = [Message(unique, str(n), n % 3) for n in range(90)]
    for message in sent:
        pub.publish(message)
    got = sub.take(90)
    assert sorted(got, key=lambda m: int(m.payload)) == sent
    for qos in range(3):  # order is defined for messages of one QoS
        assert [m for m in got if m.qos == qos] == [m for m in sent if m.qos == qos]


@pytest.mark.parametrize(("publisher", "kind"), [
    pytest.param(one, other, marks=[pytest.mark.part("interop")] if (j - i) % len(NAMES) != 1 else [])      # in `make test`: a ring
    for i, one in enumerate(NAMES) for j, other in enumerate(NAMES) if one != other])
def test_pairs(make: Maker, unique: str, kind: str, publisher: str) -> None:
    """Publish from every client to every other, from 5.0 to 3.1.1 and back."""
    for versions in ((4, 5), (5, 4)):
        sub = make(kind, versions[0], f"sub{versions}")
        sub.subscribe(f"{unique}/{versions[0]}", 2)
        pub = make(publisher, versions[1], f"pub{versions}")
        pub.publish(Message(f"{unique}/{versions[0]}", "hello", 2))
        assert sub.take(1) == [Message(f"{unique}/{versions[0]}", "hello", 2)]


@rows()
def test_retained(make: Maker, unique: str, kind: str, version: int, qos: int) -> None:
    pub = make(kind, version, "pub")
    pub.publish(Message(unique, "old", 1, True))
    pub.publish(Message(unique, "new", 1, True))
    sub = make(kind, version, "sub")
    sub.subscribe(unique, qos)
    assert sub.take(1) == [Message(unique, "new", min(qos, 1), True)]
    pub.publish(Message(unique, "live", 1, True))
    assert sub.take(1) == [Message(unique, "live", min(qos, 1), False)]
    pub.publish(Message(unique, "", 1, True))
    assert sub.take(1)[0].payload == ""
    late = make(kind, version, "late")
    late.subscribe(unique, qos)
    pub.publish(Message(unique, "after", 1))
    assert late.take(1) == [Message(unique, "after", min(qos, 1), False)]


@rows()
def test_will(make: Maker, unique: str, kind: str, version: int, qos: int) -> None:
    watch = make(kind, version, "watch")
    watch.subscribe(f"{unique}/will", qos)
    if (kind, version) != ("mosquitto", 5):  # terminated, it sends DISCONNECT with 0x04, so its will is published
        make(kind, version, "polite", will=Message(f"{unique}/will", "never", qos)).stop()
    make(kind, version, "dying", will=Message(f"{unique}/will", "gone", qos, True)).drop()
    assert watch.take(1) == [Message(f"{unique}/will", "gone", qos, False)]
    late = make(kind, version, "late")
    late.subscribe(f"{unique}/will", qos)
    assert late.take(1) == [Message(f"{unique}/will", "gone", qos, True)]
    late.publish(Message(f"{unique}/will", "", 1, True))


@rows(qos=(1, 2), hard=(False, True))
def test_resumed_session(make: Maker, unique: str, kind: str, version: int, qos: int, hard: bool) -> None:
    sub = make(kind, version, "sub", persistent=True)
    sub.subscribe(unique, qos)
    pub = make(kind, version, "pub")
    pub.publish(Message(unique, "before", qos))
    assert sub.take(1) == [Message(unique, "before", qos)]
    sub.settle()
    if hard:
        sub.drop()
    else:
        sub.stop()
    sent = [Message(unique, f"away {n}", qos) for n in range(5)]
    for message in sent:
        pub.publish(message)
    again = make(kind, version, "sub", persistent=True)
    assert again.take(5) == sent
    pub.publish(Message(unique, "back", qos))
    assert again.take(1) == [Message(unique, "back", qos)]
    again.stop()


@rows()
def test_shared(make: Maker, unique: str, kind: str, version: int, qos: int) -> None:
    members = [make(kind, version, f"member{n}") for n in range(2)]
    for member in members:
        member.subscribe(f"$share/group/{unique}/#", qos)
    end = make(kind, version, "end")
    end.subscribe(f"{unique}/#", qos)
    pub = make(kind, version, "pub")
    sent = [Message(f"{unique}/{n}", str(n), qos) for n in range(10)]
    for message in sent:
        pub.publish(message)
    assert end.take(10) == sent
    got = [member.take(1)[0] for member in members]  # each member gets at least one
    while len(got) < 10:
        got += [m for member in members for m in drained(member)]
    assert sorted(got, key=lambda m: int(m.payload)) == sent


def drained(member: object) -> list[Message]:
    import queue

    from tests.interop.clients import Client

    assert isinstance(member, Client)
    try:
        return [member.inbox.get(timeout=0.05)]
    except queue.Empty:
        return []
