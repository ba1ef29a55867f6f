"""Kill a working broker and start it again on its store: no acknowledged message is lost. `make chaos` does so 200 times."""

import asyncio
import time

import pytest

from tests.chaos.article import Scene, play, random_leaves
from tests.chaos.run import DURABLE, Plan, chaos
from tests.harness.effort import tries


@pytest.mark.again("kills")
def test_killed_many_times() -> None:
    ok, report = asyncio.run(chaos(Plan(sessions=40, kills=tries(20, 8), rate=400, up_ms=(20, 120), seed=int(time.time()), quiet=True)))
    print(report)
    assert ok, report
    assert "0 lost, 0 doubled, 0 no dup, 0 order" in report


@pytest.mark.again("kills")
def test_killed_while_deliveries_wait_for_a_plugin() -> None:
    config = DURABLE + "plugin python:tests.auth.plugins_of_tests:Passes\nauth_timeout 300\n"     # on a slow machine a queue may take longer than 10 s
    ok, report = asyncio.run(chaos(Plan(sessions=20, kills=tries(15, 4), rate=300, up_ms=(50, 300), seed=int(time.time()), quiet=True, config=config,
                                  unread_s=60)))      # a client is not read while its message before waits for the plugin
    assert ok and "0 lost, 0 doubled, 0 no dup, 0 order" in report, report


@pytest.mark.again("kills")
@pytest.mark.parametrize("workers", [2, 3])
def test_workers_killed_at_random(workers: int) -> None:
    """One worker or all, some after SIGSTOP, and their parent."""
    plan = Plan(sessions=40, kills=tries(20, 6), rate=300, up_ms=(30, 700), seed=int(time.time()), quiet=True, workers=workers)
    ok, report = asyncio.run(chaos(plan))
    assert ok and "0 lost, 0 doubled, 0 no dup, 0 order" in report, report


@pytest.mark.parametrize(("consumers", "qos"), [(3, 2), *(pytest.param(*row, marks=pytest.mark.part("kills")) for row in ((1, 1), (10, 1)))])
def test_the_offline_article_with_kills(consumers: int, qos: int) -> None:
    seed = int(time.time())
    run = play(Scene(consumers, qos, kills=2, leaves=((500, 1000), *((a, b) for a, b in random_leaves(seed) if a > 1000)), seed=seed))
    assert run.audit.ok, f"seed {seed}\n{run.audit.report()}"
    assert run.kills == 2 and run.audit.deliveries >= 2000 * consumers
