"""Test fixed rates: a stall of the broker must show in the latencies of all messages that were due during it."""

from __future__ import annotations

import pytest

from mosq.tools.bench.report import lines
from tests.bench.fake import Fake

MS = 1_000_000


def longer_than(values: dict[str, object], ns: int) -> int:
    return sum(n for first, _, n in values["buckets_ns"] if first > ns)  # type: ignore[attr-defined]


def test_a_stall_counts_in_the_latency_of_every_due_message(bench) -> None:
    with Fake(after=100, then="stall", stall_s=0.4) as fake:
        result = bench("pairs", fake.port, publishers=2, rate=1000.0, messages=600, size=1000)
    phase, = result.phases
    assert result.exact and phase.published == 600
    # 300 messages were due in the first 0.3 s of the stall: each waited for at least 0.1 s. A generator that waits with the broker would have
    # measured two, one of each publisher.
    assert longer_than(phase.latency, 100 * MS) >= 290
    assert phase.latency["max_us"] >= 390_000


def test_a_delayed_message_keeps_its_due_time(bench) -> None:
    """Test QoS 1: a publisher may not send while too much is unacknowledged; that wait counts as well."""
    with Fake(after=50, then="stall", stall_s=0.4) as fake:
        result = bench("pairs", fake.port, publishers=1, qos=1, inflight=5, rate=500.0, messages=300)
    phase, = result.phases
    assert result.exact
    assert longer_than(phase.lateness, 100 * MS) >= 140 <= longer_than(phase.latency, 100 * MS)
    assert phase.limit in ("rate", "generator", "broker")


def test_the_rate_is_met(bench) -> None:
    with Fake() as fake:
        phase, = bench("fan-in", fake.port, publishers=3, messages=0, seconds=0.3, warmup=0.1, rate=500.0).phases
    assert fake.published == 200 and phase.exact


def test_messages_that_were_due_but_never_sent_are_reported(bench) -> None:
    with Fake(after=20, then="silence") as fake:
        result = bench("pairs", fake.port, publishers=1, qos=1, inflight=10, rate=1000.0, messages=100, stall=0.3)
    phase, = result.phases
    assert not result.complete and not phase.complete and "not accepted" in result.why
    assert (phase.unsent, phase.unacknowledged) == (100 - phase.published, phase.published - 20)
    assert phase.unsent > 0


@pytest.mark.parametrize(("given", "least_s"), [({"messages": 0, "seconds": 0.8, "warmup": 0.0}, 0.8), ({"messages": 400}, 0.798)], ids=str)
def test_a_broker_that_stops_delivering_is_not_reported_as_fast(bench, given: dict[str, float], least_s: float) -> None:
    """Test that a rate covers the time of publishing, not up to the last delivery, and that lost messages have no latency."""
    with Fake(after=50, then="silence") as fake:
        result = bench("pairs", fake.port, publishers=1, rate=500.0, stall=0.3, **given)
    phase, = result.phases
    assert (result.complete, phase.delivered, phase.lost) == (True, 50, 350)
    nearly_s = least_s - 1e-6           # a difference of two times since the start of the system, rounded
    assert nearly_s <= phase.seconds and phase.rate <= 50 / nearly_s
    assert "; without 350 lost messages" in next(line for line in lines(result) if "latency" in line)
