"""Attack sessions: take-overs, wills, expiry of many at once, queues of clients that are away."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from perf.attacks import wire
from perf.attacks.attack import attack
from tests.harness.packets import Will

if TYPE_CHECKING:
    from perf.attacks.scene import Scene


@attack("take-overs", "a client id is taken over as fast as possible, with a will and a session of 1,000 filters")
def take_overs(scene: Scene) -> None:
    packet = wire.connect("same", level=5, clean=False, expiry_s=100, will=Will("will/same", b"w" * 1000))
    first = scene.client(packet)
    first.sock.sendall(wire.subscribe(1, [b"own/%d" % i for i in range(1000)], level=5))
    kept, n = [first], 0
    with contextlib.suppress(TimeoutError):
        while not scene.over():
            sock = scene.open(timeout_s=scene.left())
            sock.send(packet)
            kept.append(sock)  # type: ignore[arg-type]
            n += 1
            if len(kept) > 500:
                kept.pop(0).close()
    scene.note(f"{n:,} take-overs")


@attack("session-expiry", "20,000 sessions with filters expire in the same second; 100,000 with --seconds 5 and more")
def session_expiry(scene: Scene) -> None:
    count, until_s = (100_000, 40) if scene.seconds >= 5 else (20_000, 10)
    begin, made = time.monotonic(), 0
    filters = wire.subscribe(1, [b"gone/+/x", b"gone/#"], level=5)
    while made < count and (left_s := until_s - int(time.monotonic() - begin)) > 1:
        try:
            with scene.open() as sock:
                sock.sendall(wire.connect(f"session{made}", level=5, clean=False, expiry_s=left_s) + filters)
                sock.recv(100)
        except OSError:
            continue
        made += 1
    scene.note(f"{made:,} sessions")
    time.sleep(max(0.0, begin + until_s + 2 - time.monotonic()))


def _wills(scene: Scene, delay_s: int) -> None:
    from tests.harness.properties import P

    will = Will("wills/all", b"w" * 1000, props=((P.WILL_DELAY, delay_s),) if delay_s else ())
    scene.kept += scene.clients(
        4000,
        lambda i: (
            wire.connect(f"will{i}", level=5, expiry_s=100, will=will)
            + wire.subscribe(1, [b"wills/#"] if i < 20 else [b"other"], level=5)
        ),
    )


@attack(
    "will-storm",
    "4,000 clients with wills end at once; 20 clients get all of them",
    prepare=lambda scene: _wills(scene, 0),
)
def will_storm(scene: Scene) -> None:
    scene.note(f"{len(scene.kept):,} clients")
    for client in scene.kept[20:]:
        client.close()
    scene.flood(scene.kept[:20], lambda i: wire.PINGREQ)


@attack("will-delay-storm", "4,000 delayed wills are due in the same second", prepare=lambda scene: _wills(scene, 1))
def will_delay_storm(scene: Scene) -> None:
    for client in scene.kept[20:]:
        client.close()
    scene.end = max(scene.end, time.monotonic() + 2.5)
    scene.flood(scene.kept[:20], lambda i: wire.PINGREQ)


def _offline(scene: Scene) -> None:
    packets = wire.subscribe(1, [b"queue/#"], 1, level=5)
    for i in range(1000):
        client = scene.client(wire.connect(f"away{i}", level=5, clean=False, expiry_s=1000))
        client.sock.sendall(packets)
        client.read_type(9)
        client.close()


@attack(
    "offline-queues", "messages of 10 kB for 1,000 sessions whose clients are away", prepare=_offline, may_refuse=True
)
def offline_queues(scene: Scene) -> None:
    client = scene.client(wire.connect("fill"))
    n = scene.flood([client], lambda i: wire.publish(b"queue/%d" % i, bytes(10_000), qos=1, mid=1 + i % 60_000))
    scene.note(f"{n:,} messages")


@attack(
    "reset-storm",
    "4,000 clients with filters and queues reset their connections at once",
    prepare=lambda scene: _many(scene),
)
def reset_storm(scene: Scene) -> None:
    for client in scene.kept:
        client.close()
    scene.hold()


def _many(scene: Scene) -> None:
    scene.kept += scene.clients(
        4000, lambda i: wire.connect(f"c{i}") + wire.subscribe(1, [b"c/%d/%d" % (i, k) for k in range(20)] + [b"all/#"])
    )
