"""Test that the errors of a broker are counted exactly."""

from __future__ import annotations

import pytest

from tests.bench.fake import Fake


@pytest.mark.parametrize("scenario", ["fan-in", "fan-out", "pairs", "shared"])
@pytest.mark.parametrize("wrong", [{"double": 7}, {"drop": 10, "double": 7}], ids=str)
def test_lost_and_duplicate_messages_are_counted(bench, scenario: str, wrong: dict[str, int]) -> None:
    with Fake(**wrong) as fake:
        result = bench(scenario, fake.port, subscribers=3, window=0, stall=0.6 if "drop" in wrong else 5.0)
    phase, = result.phases
    assert result.complete and phase.complete and not result.exact
    assert phase.published == fake.published == 400
    assert (phase.lost, phase.duplicates) == (fake.dropped, fake.doubled)
    assert phase.delivered == phase.expected - fake.dropped + fake.doubled
    assert phase.duplicates > 0


def test_messages_out_of_order_are_counted(bench) -> None:
    with Fake(swap=9) as fake:
        phase, = bench("pairs", fake.port, publishers=1, window=0).phases
    assert (phase.out_of_order, phase.lost, phase.duplicates) == (fake.swapped, 0, 0)
    assert fake.swapped == 400 // 9 and not phase.exact


def test_everything_in_order_is_exact(bench) -> None:
    with Fake() as fake:
        result = bench("fan-out", fake.port, subscribers=3, window=50)
    assert result.exact and result.phases[0].delivered == 1200


def test_lost_messages_free_the_window(bench) -> None:
    """Test that lost messages free the window: otherwise a run that loses more than its window would never end."""
    with Fake(drop=2) as fake:
        phase, = bench("pairs", fake.port, publishers=1, messages=40, window=10, burst=5, stall=0.6).phases
    assert (phase.published, phase.lost) == (40, 20)


def test_refused_publications_are_not_lost(bench) -> None:
    with Fake(deny=8) as fake:
        phase, = bench("pairs", fake.port, qos=1, version=5).phases
    assert (phase.refused, phase.lost, phase.unacknowledged) == (fake.denied, 0, 0)
    assert phase.ack["count"] == 400 and fake.denied == 50 and not phase.exact


def test_messages_of_other_publishers_do_not_count(bench) -> None:
    """Test another publisher on the same topics, and an older run: neither counts."""
    with Fake() as fake:
        forward = fake.forward

        def with_others(topic: str, frame: bytes) -> None:
            forward(topic, frame[:-64] + bytes(64))
            forward(topic, b"\x30\x05\0\x01aXY")
            forward(topic, frame)

        fake.forward = with_others  # type: ignore[method-assign]
        result = bench("fan-in", fake.port, subscribers=1, window=0)
    phase, = result.phases
    assert result.exact and (phase.delivered, phase.foreign) == (400, 800)


def test_large_payloads_are_counted_without_being_read(bench) -> None:
    with Fake(drop=5) as fake:
        phase, = bench("pairs", fake.port, size=300_000, messages=20, window=0, stall=0.6).phases
    assert (phase.delivered, phase.lost, phase.out_of_order) == (16, 4, 0)


def test_the_receive_maximum_of_the_broker_is_respected(bench) -> None:
    """Test [v5 3.3.4-9]: at most three unacknowledged PUBLISHes."""
    with Fake(connack_props=b"\x21\0\x03") as fake:
        result = bench("pairs", fake.port, qos=1, version=5, publishers=1, inflight=20, messages=60)
    assert result.exact and result.phases[0].ack["count"] == 60
    assert fake.largest_burst == 3
