"""Provide wire tests as tables: actors, steps, and the scene that runs them with a broker.

A case is a list of steps; in a step one actor (a named connection) sends or must receive a packet. In every string of a table
`~` stands for a prefix of the current run, so that its topics and client ids differ from those of other runs on the same broker.
The first packet with a name as its packet id binds the name; later packets must carry the same id.
"""

from __future__ import annotations

import itertools
import re
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, cast

from tests.harness.packets import (
    V5,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Received,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
    decode,
)  # fmt: skip
from tests.harness.properties import P, Props
from tests.harness.effort import TIMEOUT_S
from tests.harness.wire import Wire

_prefixes = itertools.count(1)
NO_MATCH = 0x10
LONG = 3600


@dataclass(frozen=True)
class Step:
    text: str
    act: Callable[[Scene], None]
    levels: tuple[int, ...] = (3, 4, 5)


Steps = Step | Iterable["Steps"]


def flat(steps: Steps) -> list[Step]:
    return [steps] if isinstance(steps, Step) else [one for part in steps for one in flat(part)]


def v5(*steps: Steps) -> list[Step]:
    return [replace(s, levels=(5,)) for s in flat(steps)]


def v3(*steps: Steps) -> list[Step]:
    """Return the steps for 3.1 and 3.1.1 only."""
    return [replace(s, levels=(3, 4)) for s in flat(steps)]


def wait(seconds: float) -> Step:
    """Wait for an event that depends on the clock, such as an expiry or a will's delay."""
    return Step(f"wait({seconds})", lambda _: time.sleep(seconds))


@dataclass
class Scene:
    port: int
    level: int
    websocket: bool = False
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        self.prefix = f"w{next(_prefixes)}"
        self.wires: dict[str, Wire] = {}
        self.bound: dict[str, int] = {}
        self._mids = itertools.count(1001)
        self.alias_max: dict[str, int] = {}
        self._aliases: dict[str, dict[int, str]] = {}

    def play(self, steps: Steps) -> None:
        at, step = 0, None
        try:
            for at, step in enumerate(flat(steps)):
                if self.level in step.levels:
                    step.act(self)
        except (AssertionError, OSError, ValueError) as error:
            raise AssertionError(f"MQTT level {self.level}, step {at}, {step and step.text}:\n{error!r}\n{error}") from error
        finally:
            for wire in self.wires.values():
                wire.close()

    def wire(self, actor: str) -> Wire:
        return self.wires[actor]

    def open(self, actor: str, level: int | None = None) -> Wire:
        if actor in self.wires:
            self.wires[actor].close()
        self.alias_max[actor] = 0
        self._aliases[actor] = {}
        self.wires[actor] = Wire(self.port, level or self.level, websocket=self.websocket, tls=self.tls)
        return self.wires[actor]

    def read(self, actor: str, timeout_s: float | None = None) -> Received:
        """Return the next packet with its topic alias resolved; the broker may use aliases up to our maximum."""
        got = self.wire(actor).read_packet(timeout_s)
        alias = dict(got.props).get(P.TOPIC_ALIAS) if isinstance(got, Publish) else None
        if not isinstance(got, Publish) or not isinstance(alias, int):
            return got
        assert 0 < alias <= self.alias_max[actor], f"alias {alias}, allowed are {self.alias_max[actor]}: {got}"
        if got.topic:
            self._aliases[actor][alias] = got.topic
        topic = self._aliases[actor].get(alias, "(unknown alias)")
        return replace(got, topic=topic, props=tuple(p for p in got.props if p[0] != P.TOPIC_ALIAS))

    def next_mid(self) -> int:
        return next(self._mids)

    def fill(self, item: Any) -> Any:
        """Return `item` with ~ replaced in every nested string, and names of packet ids replaced by the bound ids."""
        if isinstance(item, str):
            return item.replace("~", self.prefix)
        if isinstance(item, tuple):
            return tuple(self.fill(part) for part in item)
        if is_dataclass(item) and not isinstance(item, type):
            changed = {f.name: self.fill(getattr(item, f.name)) for f in fields(item) if f.name != "mid"}
            mid = getattr(item, "mid", None)
            if isinstance(mid, str) and mid in self.bound:
                changed["mid"] = self.bound[mid]
            return replace(cast(Any, item), **changed)
        return item

    def agrees(self, want: Packet, got: Received) -> bool:
        """Return whether the packets agree; bind a packet id that is still a name. Only user properties must be in order."""
        want = self.fill(want)
        mid = getattr(want, "mid", None)
        seen = getattr(got, "mid", None)
        if isinstance(mid, str) and isinstance(seen, int) and seen and seen not in self.bound.values():
            want = replace(cast(Any, want), mid=seen)
        same: bool = _normal(want, self.level, ()) == _normal(got, self.level, getattr(want, "props", ()))
        if same and isinstance(mid, str) and isinstance(seen, int):
            self.bound[mid] = seen
        return same

    def expect(self, actor: str, want: Packet, timeout_s: float | None = None) -> Received:
        got = self.read(actor, timeout_s)
        assert self.agrees(want, got), f"\n got {got}\nwant {self.fill(want)}"
        return got


def _normal(packet: Packet | Received, level: int, wanted: Props) -> Any:
    """Return the packet without parts that are not compared: codes and properties before 5.0, and an unexpected reason string."""
    item = cast(Any, packet)
    names = {f.name for f in fields(item)}
    if "props" in names:
        keep = item.props if level >= V5 else ()
        if P.REASON_STRING not in [ident for ident, _ in wanted]:
            keep = tuple(p for p in keep if p[0] != P.REASON_STRING)
        item = replace(item, props=tuple(sorted(keep, key=lambda pair: pair[0])))
    if level < V5 and isinstance(item, Puback | Pubrec | Pubrel | Pubcomp):
        item = replace(item, rc=0)
    if level < V5 and isinstance(item, Unsuback):
        item = replace(item, codes=())
    return item


class Actor:
    """Make steps for one named connection. The default client id is `~name`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _step(self, verb: str, what: object, act: Callable[[Scene], None]) -> Step:
        return Step(f"{self.name}.{verb} {what}", act)

    # -- connection

    def opens(self, level: int | None = None) -> Step:
        return self._step("opens", "", lambda s: void(s.open(self.name, level)))

    def connects(
        self,
        client_id: str | None = None,
        *,
        session: bool = False,
        persistent: bool = False,
        level: int | None = None,
        clean: bool | None = None,
        keepalive: int = 60,
        will: Will | None = None,
        username: str | None = None,
        password: bytes | None = None,
        props: Props = (),
    ) -> Step:
        """Open, send CONNECT, expect an accepting CONNACK with this session present flag."""
        if persistent and P.SESSION_EXPIRY not in [i for i, _ in props]:
            props = ((P.SESSION_EXPIRY, LONG), *props)
        ask = Connect(f"~{self.name}" if client_id is None else client_id,
                      (not persistent) if clean is None else clean, keepalive, will, username, password, props)  # fmt: skip

        def act(s: Scene) -> None:
            wire = s.open(self.name, level)
            s.alias_max[self.name] = cast(int, dict(props).get(P.TOPIC_ALIAS_MAXIMUM, 0))
            wire.send(s.fill(ask))
            got = wire.read_packet()
            assert isinstance(got, Connack), got
            assert (got.rc, got.session) == (0, session and wire.level > 3), got

        return self._step("connects", ask, act)

    def refused(self, rc5: int, rc3: int) -> Step:
        """Expect a refusing CONNACK without properties (except a reason string), then the end."""

        def act(s: Scene) -> None:
            wire = s.wire(self.name)
            got = wire.read_packet()
            assert isinstance(got, Connack), got
            want = rc5 if wire.level >= V5 else rc3
            assert (got.rc, got.session) == (want, False), f"{got}, wanted {want:#x}"
            wire.expect_closed()

        return self._step("refused", f"{rc5:#x}/{rc3:#x}", act)

    def turned_away(self, *codes: int) -> Step:
        """Expect the end, at once or after a CONNACK with one of these codes: the broker does not know the version."""

        def act(s: Scene) -> None:
            raw = s.wire(self.name).read_frame()
            assert raw is None or (raw[0] == 0x20 and raw[3] in codes), raw
            if raw is not None:
                s.wire(self.name).expect_closed()

        return self._step("turned_away", codes, act)

    def rejected(self, *codes: int) -> Step:
        """Expect the end after an invalid CONNECT: 5.0 gets a CONNACK with one of these codes first [v5 4.13.1], 3.x does not."""

        def act(s: Scene) -> None:
            wire = s.wire(self.name)
            if wire.level >= V5:
                got = wire.read_packet()
                assert isinstance(got, Connack) and got.rc in codes and not got.session, (got, [hex(c) for c in codes])
            wire.expect_closed()

        return self._step("rejected", [hex(c) for c in codes], act)

    def rejected_or_closed(self, *codes: int) -> Step:
        """Expect the end, at once or after a refusing CONNACK (any code in 3.x, one of these codes in 5.0)."""

        def act(s: Scene) -> None:
            wire = s.wire(self.name)
            raw = wire.read_frame()
            if raw is not None:
                got = decode(wire.level, raw)
                assert isinstance(got, Connack) and got.rc and (wire.level < V5 or got.rc in codes), got
                wire.expect_closed()

        return self._step("rejected_or_closed", [hex(c) for c in codes], act)

    def until_connected(self) -> Step:
        """Try to connect until the broker has noticed that there is room."""

        def act(s: Scene) -> None:
            deadline = time.monotonic() + TIMEOUT_S
            while True:
                wire = s.open(self.name)
                try:
                    wire.send(s.fill(Connect(f"~{self.name}")))
                    raw = wire.read_frame()
                except OSError:
                    raw = None
                if raw is not None and raw[3] == 0:
                    return
                assert time.monotonic() < deadline, raw
                time.sleep(0.02)

        return self._step("until_connected", "", act)

    def ends(self, *codes: int) -> Step:
        """Expect the end of the connection: a client of 5.0 gets DISCONNECT with one of these codes first, one of 3.x does not."""

        def act(s: Scene) -> None:
            wire = s.wire(self.name)
            if wire.level >= V5:
                got = wire.read_packet()
                assert isinstance(got, Disconnect) and not isinstance(got, Auth) and got.rc in codes, (
                    f"{got}, wanted DISCONNECT {[hex(c) for c in codes]}"
                )
            wire.expect_closed()

        return self._step("ends", [hex(c) for c in codes], act)

    def ends_or_suback(self, mid: int, *codes: int) -> Step:
        """Expect the refusal of a forbidden filter: the connection ends, or SUBACK refuses this filter."""
        return self._refusal(Suback(mid, (codes[0],)), 0x80, codes)

    def ends_or_unsuback(self, mid: int, *codes: int) -> Step:
        return self._refusal(Unsuback(mid, (codes[0],)), None, codes)

    def _refusal(self, ack: Suback, code3: int | None, codes: tuple[int, ...]) -> Step:
        def act(s: Scene) -> None:
            wire = s.wire(self.name)
            raw = wire.read_frame()
            if raw is None:
                assert wire.level < V5, "a 5.0 client gets the reason code"
                return
            got = decode(wire.level, raw)
            if isinstance(got, Suback):
                want = ack if wire.level >= V5 or code3 is None else replace(ack, codes=(code3,))
                assert s.agrees(want, got), f"\n got {got}\nwant {want}"
                return
            assert isinstance(got, Disconnect) and got.rc in codes, got
            wire.expect_closed()

        return self._step("ends or refuses", ack, act)

    def closed(self, timeout_s: float | None = None) -> Step:
        return self._step("closed", "", lambda s: s.wire(self.name).expect_closed(timeout_s))

    def silent(self, seconds: float) -> Step:
        """Expect no packet and no end for this long."""

        def act(s: Scene) -> None:
            try:
                got = s.wire(self.name).read_frame(seconds)
            except TimeoutError:
                return
            raise AssertionError(f"not silent for {seconds} s: {got!r}")

        return self._step("silent", seconds, act)

    def ends_within(self, seconds: float, *codes: int) -> Step:
        def act(s: Scene) -> None:
            s.wire(self.name).timeout_s = seconds
            self.ends(*codes).act(s)

        return self._step("ends_within", (seconds, codes), act)

    def resets(self) -> Step:
        return self._step("resets", "", lambda s: s.wire(self.name).reset())

    def drops(self) -> Step:
        return self._step("drops", "", lambda s: s.wire(self.name).close())

    def leaves(self, rc: int = 0, props: Props = ()) -> Step:
        def act(s: Scene) -> None:
            s.wire(self.name).send(Disconnect(rc, props))
            s.wire(self.name).expect_closed()

        return self._step("leaves", hex(rc), act)

    def leaves_unread(self) -> Step:
        """Send DISCONNECT; discard packets that arrive before the end."""

        def act(s: Scene) -> None:
            s.wire(self.name).send(Disconnect())
            while s.wire(self.name).read_frame() is not None:
                pass

        return self._step("leaves_unread", "", act)

    def sends_connect(self, props: Props = (), **more: Any) -> Step:
        return self.sends(Connect(f"~{self.name}", props=props, **more))

    # -- packets

    def sends(self, *packets: Packet) -> Step:
        return self._step("sends", packets, lambda s: s.wire(self.name).send(*(s.fill(p) for p in packets)))

    def sends_raw(self, *chunks: bytes) -> Step:
        def act(s: Scene) -> None:
            for chunk in chunks:
                s.wire(self.name).send(chunk)

        return self._step("sends_raw", [c[:60] for c in chunks[:4]], act)

    def gets(self, *packets: Packet, timeout_s: float | None = None) -> Step:
        def act(s: Scene) -> None:
            for want in packets:
                s.expect(self.name, want, timeout_s)

        return self._step("gets", packets, act)

    def gets_any(self, *packets: Packet) -> Step:
        """Expect these packets in any order."""

        def act(s: Scene) -> None:
            left = list(packets)
            while left:
                got = s.read(self.name)
                match = next((w for w in left if s.agrees(w, got)), None)
                assert match is not None, f"\n got {got}\nwant one of {s.fill(tuple(left))}"
                left.remove(match)

        return self._step("gets_any", packets, act)

    def gets_until(self, last: Packet, allowed: tuple[Packet, ...]) -> Step:
        """Expect `last`; only the allowed packets may precede it."""

        def act(s: Scene) -> None:
            while not s.agrees(last, got := s.read(self.name)):
                assert any(s.agrees(one, got) for one in allowed), got

        return self._step("gets_until", last, act)

    def gets_raw(self, raw: bytes) -> Step:
        return self._step("gets_raw", raw.hex(" "), lambda s: s.wire(self.name).expect(raw))

    def checks(self, check: Callable[[Received], bool], what: str = "") -> Step:
        """Check the next packet with a function that returns False or raises if the packet is wrong."""

        def act(s: Scene) -> None:
            got = s.wire(self.name).read_packet()
            assert check(got), got

        return self._step("checks", what, act)

    def quiet(self) -> Step:
        return self._step("quiet", "", lambda s: s.wire(self.name).expect_nothing())

    # -- whole exchanges

    def subscribes(
        self, *filters: str | tuple[str, int], qos: int = 0, codes: tuple[int, ...] | None = None, props: Props = ()
    ) -> Step:
        """Send SUBSCRIBE and expect SUBACK. A filter may have an options byte, whose lowest two bits are the requested QoS."""
        pairs = tuple((f, qos) if isinstance(f, str) else f for f in filters)
        granted = tuple(options & 3 for _, options in pairs) if codes is None else codes

        def act(s: Scene) -> None:
            mid = s.next_mid()
            s.wire(self.name).send(s.fill(Subscribe(mid, pairs, props)))
            s.expect(self.name, Suback(mid, granted))

        return self._step("subscribes", filters, act)

    def unsubscribes(self, *filters: str, codes: tuple[int, ...] | None = None) -> Step:
        def act(s: Scene) -> None:
            mid = s.next_mid()
            s.wire(self.name).send(s.fill(Unsubscribe(mid, filters)))
            s.expect(self.name, Unsuback(mid, codes or (0,) * len(filters)))

        return self._step("unsubscribes", filters, act)

    def publishes(
        self, topic: str, payload: bytes = b"", qos: int = 0, *, retain: bool = False, props: Props = (), rc: int | None = None
    ) -> Step:
        """Send PUBLISH and complete the handshake of its QoS (QoS 0: a ping). rc None = 0 or "no matching subscribers"."""

        def act(s: Scene) -> None:
            wire, mid = s.wire(self.name), s.next_mid()
            wire.send(s.fill(Publish(topic, payload, qos, mid if qos else 0, retain, props=props)))
            if qos == 0:
                wire.expect_nothing()
                return
            got = wire.read_packet()
            assert isinstance(got, Puback if qos == 1 else Pubrec) and got.mid == mid, got
            assert got.rc in ((0, NO_MATCH) if rc is None else (rc,)) or wire.level < V5, got
            if qos == 2 and got.rc < 0x80:
                wire.send(Pubrel(mid))
                wire.expect_packet(Pubcomp(mid))

        return self._step("publishes", (topic, payload[:40], qos), act)

    def receives(
        self, topic: str, payload: bytes = b"", qos: int = 0, *, retain: bool = False, dup: bool = False, props: Props = ()
    ) -> Step:
        """Expect a PUBLISH and complete its handshake."""

        def act(s: Scene) -> None:
            wire = s.wire(self.name)
            got = s.read(self.name)
            assert isinstance(got, Publish), got
            want = Publish(topic, payload, qos, got.mid, retain, dup, props)
            assert s.agrees(want, got), f"\n got {got}\nwant {s.fill(want)}"
            assert (qos > 0) == (got.mid != 0), got
            if qos == 1:
                wire.send(Puback(got.mid))
            elif qos == 2:
                wire.send(Pubrec(got.mid))
                wire.expect_packet(Pubrel(got.mid))
                wire.send(Pubcomp(got.mid))

        return self._step("receives", (topic, payload[:40], qos), act)

    def awaits_retained(self, topic: str, pattern: bytes, timeout_s: float = 4.0) -> Step:
        """Expect a retained or first published message of the topic that matches the pattern."""

        def act(s: Scene) -> None:
            got = s.wire(self.name).read_packet(timeout_s)
            assert isinstance(got, Publish) and got.topic == topic, got
            assert re.fullmatch(pattern, got.payload), got

        return self._step("awaits_retained", topic, act)

    def awaits_change(self, topic: str, other: Actor) -> Step:
        """Expect a gauge to change while another client connects and disconnects."""

        def act(s: Scene) -> None:
            wire, seen = s.wire(self.name), set()
            for _ in range(8):
                other.connects().act(s)
                got = wire.read_packet(4.0)
                assert isinstance(got, Publish) and got.topic == topic, got
                seen.add(int(got.payload))
                other.leaves().act(s)
                if len(seen) > 1:
                    return
            raise AssertionError(f"always the same: {seen}")

        return self._step("awaits_change", topic, act)

    def receives_merged(self, topic: str, payload: bytes, qos: int, idents: set[int]) -> Step:
        """Expect one QoS 1 or 2 copy with exactly these subscription identifiers."""

        def check(got: Received) -> bool:
            assert isinstance(got, Publish)
            found = [value for ident, value in got.props if ident == P.SUBSCRIPTION_ID]
            assert (got.qos, got.payload, set(found), len(found)) == (qos, payload, idents, len(idents)), got
            return True

        return self.checks(check, f"{topic} {idents}")

    def shares(self, other: Actor, payloads: list[bytes], fair: bool = False) -> Step:
        """Expect each of these payloads at exactly one of two members of a group; each member gets its payloads in order."""

        def act(s: Scene) -> None:
            seen: list[list[bytes]] = []
            for member in (self.name, other.name):
                wire, mine = s.wire(member), []
                wire.send(Pingreq())
                while not isinstance(got := wire.read_packet(), Pingresp):
                    assert isinstance(got, Publish), got
                    mine.append(got.payload)
                    if got.qos:
                        wire.send(Puback(got.mid))
                assert mine == [p for p in payloads if p in mine], f"out of order: {mine}"
                seen.append(mine)
            assert sorted(seen[0] + seen[1]) == sorted(payloads), seen
            assert not fair or min(len(part) for part in seen) > 0, f"one member gets all: {seen}"

        return self._step("shares", other.name, act)


def void(_: object) -> None:
    """Discard a value on purpose."""
