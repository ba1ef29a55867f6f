"""Test that any sequence of client actions gives the deliveries of the naive model; hypothesis shrinks a counterexample."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.broker import Broker
from tests.harness.effort import tries
from tests.model.driver import FILTERS, TOPICS, Action, Driver

QOS = st.integers(0, 2)
WHO = st.integers(0, 2)
ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.tuples(st.just("connect"), WHO, st.booleans(), QOS),
    st.tuples(st.just("connect"), WHO, st.just(True), QOS),
    st.tuples(st.just("subscribe"), WHO, st.integers(0, len(FILTERS) - 1), QOS),
    st.tuples(st.just("subscribe"), WHO, st.integers(0, len(FILTERS) - 1), st.just(2)),
    st.tuples(st.just("unsubscribe"), WHO, st.integers(0, len(FILTERS) - 1)),
    st.tuples(st.just("publish"), WHO, st.integers(0, len(TOPICS) - 1), QOS, st.booleans(), st.booleans(), st.just(0)),
    st.tuples(st.just("publish"), WHO, st.integers(0, len(TOPICS) - 1), st.integers(1, 2), st.just(False), st.just(False), st.integers(0, 3)),
    st.tuples(st.just("receive"), WHO, st.integers(0, 3)),
    st.tuples(st.just("drop"), WHO),
    st.tuples(st.just("disconnect"), WHO),
)
START: list[Action] = [("connect", who, True, 0) for who in range(3)] + [("subscribe", who, 2, 2 - who) for who in range(3)]


def running(duplicates: str) -> Iterator[int]:
    with Broker(f"sys_interval 0\nallow_duplicate_messages {duplicates}\nmax_inflight_messages 1000\n") as broker:
        yield broker.port
        assert broker.alive(), broker.log()[-2000:]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    yield from running("true")


@pytest.fixture(scope="module")
def merging() -> Iterator[int]:
    yield from running("false")


@pytest.mark.again("properties")
@settings(max_examples=tries(300, 50), derandomize=True, suppress_health_check=list(HealthCheck))
@given(levels=st.tuples(*[st.sampled_from((3, 4, 5))] * 3), actions=st.lists(ACTIONS, min_size=30, max_size=80))
def test_deliveries(port: int, levels: tuple[int, ...], actions: list[Action]) -> None:
    Driver(port, levels).play(START + actions)


@pytest.mark.again("properties")
@settings(max_examples=tries(150, 25), derandomize=True, suppress_health_check=list(HealthCheck))
@given(levels=st.tuples(*[st.sampled_from((3, 4, 5))] * 3), actions=st.lists(ACTIONS, min_size=30, max_size=80))
def test_merged_deliveries(merging: int, levels: tuple[int, ...], actions: list[Action]) -> None:
    Driver(merging, levels, merged=True).play(START + actions)
