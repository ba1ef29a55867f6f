"""Test the links between workers in the simulator: workers with the real state machine, clients, cuts, kills (cext/testing/link_sim.pyx)."""

from __future__ import annotations

import pytest
from cext.testing.link_sim import Simulator
from tests.harness.effort import tries
from tests.link.rules import RULES, TOO_RARE

# Schedules after which a simulation without this rule must have failed. Most rules need less than 500.
SCHEDULES = 3000
RARE = {"drop_number": 20_000, "ready_of_down": 20_000, "choose_again": 20_000, "down_is_dead": 20_000, "will_recorded": 100_000, "later": 20_000,
        "void": 500_000, "ask_behind_routes": 100_000}


def explain(simulator: Simulator, seed: int, text: str, off: int = 0) -> str:
    trace = simulator.trace(seed, off).splitlines()
    return "\n".join([f"schedule {seed}: {text}", *trace[-200:]])


@pytest.mark.again("links")
@pytest.mark.parametrize("block", range(4))
def test_no_schedule_breaks_an_invariant(block: int) -> None:
    simulator = Simulator()
    n = tries(25_000, 500)
    _, failure = simulator.run(1 + block * n, n)
    assert failure is None, explain(simulator, *failure)


@pytest.mark.parametrize("rule", [pytest.param(rule, marks=pytest.mark.part("links")) if rule in RARE else rule
                                  for rule in RULES if rule not in TOO_RARE])
def test_the_simulator_finds_a_rule_that_is_missing(rule: str) -> None:
    simulator = Simulator()
    _, failure = simulator.run(1, RARE.get(rule, SCHEDULES), 1 << RULES[rule])
    assert failure is not None, "no schedule failed without this rule"


def test_a_schedule_is_repeatable_and_its_trace_ends_with_the_failure() -> None:
    simulator = Simulator()
    _, failure = simulator.run(1, SCHEDULES, 1 << RULES["ack_after_commit"])
    assert failure is not None
    seed, text = failure
    again = Simulator()
    assert again.run(seed, 1, 1 << RULES["ack_after_commit"]) == (1, failure)
    assert text in again.trace(seed, 1 << RULES["ack_after_commit"])
