"""Test the nodes of a cluster in virtual time, with random faults (world.py); and that the simulator notices each rule that is missing."""

from __future__ import annotations

import pytest

from tests.cluster.without import RULES
from tests.cluster.world import Options, play_all, trace_of
from tests.harness.effort import tries

# Schedules after which a simulation without a rule must have failed. The rarest needs less than 1000.
SCHEDULES = 1500


def explain(seed: int, text: str) -> str:
    return "\n".join([f"schedule {seed}: {text}", *trace_of(seed, Options())[-200:]])


@pytest.mark.again("nodes")
@pytest.mark.parametrize("block", range(4))
def test_no_schedule_breaks_an_invariant(block: int) -> None:
    n = tries(25_000, 1000)
    failure = play_all(1 + block * n, n, Options())
    assert failure is None, explain(*failure)


@pytest.mark.parametrize("rule", RULES)
def test_the_simulator_finds_a_rule_that_is_missing(rule: str) -> None:
    assert play_all(1, SCHEDULES, RULES[rule]) is not None, "no schedule failed without this rule"


def test_a_schedule_is_repeatable_and_its_trace_ends_with_the_failure() -> None:
    failure = play_all(1, SCHEDULES, RULES["own lease"])
    assert failure is not None
    seed, text = failure
    assert play_all(seed, 1, RULES["own lease"]) == failure
    assert text in trace_of(seed, RULES["own lease"])[-1]
