"""Test that turns under load have an average distance, by the number of turns that the broker counts."""

from __future__ import annotations

import signal
import time
from itertools import product

import mosq
from tests.harness.broker import Broker
from tests.harness.faults import until
from tests.harness.packets import Connack, Connect, Pingreq, Pingresp, Publish, Suback, Subscribe
from tests.harness.wire import Wire

INTERVAL_US = 10_000
AT_ONCE = 16                # TURNS_AT_ONCE of cext/net/reactor.pyx


def connected(broker: mosq.Broker) -> Wire:
    wire = Wire(broker.port, 4)
    wire.send(Connect("c"))
    wire.expect_packet(Connack(0))
    return wire


def pings_s(wire: Wire, count: int) -> float:
    """Return the time that requests take which are sent one after another: each needs a turn."""
    begin_s = time.monotonic()
    for _ in range(count):
        wire.send(Pingreq())
        wire.expect_packet(Pingresp())
    return time.monotonic() - begin_s


def test_turns_under_load_have_a_distance() -> None:
    with mosq.Broker(sys_interval=0, turn_interval=INTERVAL_US) as broker:
        wire = connected(broker)
        assert pings_s(wire, 60) >= (60 - AT_ONCE - 1) * INTERVAL_US / 1e6
        wire.close()


def test_the_first_turns_after_a_rest_do_not_wait() -> None:
    with mosq.Broker(sys_interval=0, turn_interval=INTERVAL_US) as broker:
        wire = connected(broker)
        until(lambda: pings_s(wire, 10) < 10 * INTERVAL_US / 1e6 / 2)       # a busy machine may delay some rounds
        wire.close()


def test_a_turn_with_work_left_does_not_wait() -> None:
    """The budget divides each of these matches into more turns than may wait in the time that all take."""
    with mosq.Broker(sys_interval=0, turn_interval=INTERVAL_US, turn_budget=1000) as broker:
        wire = connected(broker)
        filters = ["/".join(parts) + "/x" for parts in product("a+", repeat=10)]
        for start in range(0, len(filters), 32):
            some = filters[start:start + 32]
            wire.send(Subscribe(1, tuple((one, 0) for one in some)))
            wire.expect_packet(Suback(1, (0,) * len(some)))
        turns, begin_s = broker.stats()["turns"], time.monotonic()
        for _ in range(30):
            wire.send(Publish("a/" * 10 + "y"))
        pings_s(wire, 1)
        waits = (time.monotonic() - begin_s) / (INTERVAL_US / 1e6) + AT_ONCE
        assert broker.stats()["turns"] - turns > 2 * waits
        wire.close()


def test_a_reload_changes_the_interval() -> None:
    with Broker("allow_anonymous true\n") as broker:
        wire = Wire(broker.port, 4)
        wire.send(Connect("c"))
        wire.expect_packet(Connack(0))
        broker.config.write_text(broker.config.read_text() + f"turn_interval {INTERVAL_US}\n")
        broker.send_signal(signal.SIGHUP)
        until(lambda: pings_s(wire, 60) >= (60 - AT_ONCE - 1) * INTERVAL_US / 1e6)
        wire.close()
