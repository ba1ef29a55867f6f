"""Run the chaos harness for a short time. `make chaos` does the long run."""

import asyncio

import pytest

from tests.chaos.article import Scene, play, random_leaves
from tests.chaos.run import MEMORY, Plan, chaos


def run(plan: Plan) -> None:
    ok, report = asyncio.run(chaos(plan))
    assert ok, report


def test_dropped_connections() -> None:
    """Test without a store: all connections end at once, the broker survives."""
    run(Plan(sessions=40, kills=10, drop=True, config=MEMORY, up_ms=(20, 200), quiet=True))


def test_the_harness_finds_losses_of_a_broker_without_a_store() -> None:
    """Test a broker without a store: a kill loses all sessions, and acknowledged messages in transit or retained messages."""
    ok, report = asyncio.run(chaos(Plan(sessions=8, kills=4, rate=400, config=MEMORY, settle_s=1, quiet=True)))
    assert not ok
    assert " 0 session" not in report and ("\n0 lost" not in report or " 0 retained" not in report), report


@pytest.mark.parametrize("politely", [True, False])
@pytest.mark.parametrize(("consumers", "qos"), [(3, 2), *(pytest.param(*row, marks=pytest.mark.part("kills")) for row in ((1, 1), (10, 1)))])
def test_the_offline_article(consumers: int, qos: int, politely: bool) -> None:
    leaves = ((500, 1000), *((a, b) for a, b in random_leaves(consumers) if a > 1000))
    chaos = play(Scene(consumers, qos, leaves=leaves, politely=politely, config=MEMORY))
    audit = chaos.audit
    assert audit.ok, audit.report()
    assert chaos.connects == 1 + consumers * (2 + len(leaves))
    assert audit.deliveries >= 2000 * consumers
    if politely:
        assert audit.redeliveries == 0      # the consumer acknowledged all received messages before it left
