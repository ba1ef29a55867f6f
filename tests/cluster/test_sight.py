"""Test which nodes live, as one node sees it (mosq/cluster/sight.py)."""

from __future__ import annotations

from mosq.cluster.sight import Observer
from mosq.cluster.terms import Terms

TERMS = Terms(lease_s=4.0, margin_s=2.0)
STEP_S = TERMS.beat_s


class Watch:
    """An observer that reads once each beat."""

    def __init__(self) -> None:
        self.observer, self.now, self.source = Observer(TERMS), 100.0, "a"

    def read(self, seconds: float, **beats: str) -> Observer:
        """Read the same beats again and again for a time."""
        end_s = self.now + seconds
        while self.now < end_s:
            self.now = min(self.now + STEP_S, end_s)
            self.observer.see(self.now, self.source, beats)
        return self.observer


def test_a_beat_that_does_not_change_for_lease_and_margin_is_that_of_a_dead_node() -> None:
    watch = Watch()
    watch.read(STEP_S, x="r 1", y="r 1")
    assert not watch.read(5.9, x="r 1", y="r 2").dead("x")
    assert watch.read(0.2, x="r 1", y="r 3").dead("x")
    assert not watch.observer.dead("y")


def test_another_run_of_a_node_is_a_change() -> None:
    watch = Watch()
    watch.read(7, x="r 1")
    assert not watch.read(STEP_S, x="q 0").dead("x")


def test_time_without_readings_does_not_count() -> None:
    watch = Watch()
    watch.read(5, x="r 1")
    watch.now += TERMS.gap_s + 60
    assert not watch.read(5.9, x="r 1").dead("x")
    assert watch.read(1.2, x="r 1").dead("x")


def test_another_server_begins_observation_again_and_forbids_claims() -> None:
    watch = Watch()
    assert watch.read(7, x="r 1").settled()
    watch.source = "b"
    assert not watch.read(5.9, x="r 1").settled()
    assert not watch.observer.dead("x")
    assert watch.read(1.0, x="r 1").settled()
    assert watch.observer.dead("x")


def test_a_node_is_steady_when_it_may_claim_workers_itself() -> None:
    watch = Watch()
    watch.read(STEP_S, x="r 1")
    assert not watch.read(5.9, x="r 2").steady("x")
    assert watch.read(0.2, x="r 3").steady("x")
    assert not watch.observer.steady("unknown")
    assert not watch.read(7, x="r 3").steady("x")


def test_a_dead_node_is_not_steady_after_a_time_without_readings() -> None:
    watch = Watch()
    assert not watch.read(7, x="r 1").steady("x")
    watch.now += TERMS.gap_s + 60
    assert not watch.read(4.5, x="r 1").dead("x")
    assert not watch.observer.steady("x")


def test_a_node_that_left_is_forgotten() -> None:
    watch = Watch()
    watch.read(7, x="r 1", y="r 1")
    assert not watch.read(STEP_S, y="r 1").dead("x")
    assert not watch.read(STEP_S, x="r 1", y="r 1").dead("x")
