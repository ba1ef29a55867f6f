"""Test which node gets which worker (mosq/cluster/placement.py)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mosq.cluster.placement import Move, assign, held_by, next_move, quotas
from tests.harness.effort import tries

NAMES = st.sampled_from("abcdef")
CAPACITIES = st.dictionaries(NAMES, st.integers(1, 5), min_size=1, max_size=5)
OWNERS = st.lists(st.none() | NAMES, min_size=1, max_size=64)


def balanced(capacities: dict[str, int], owners: list[str | None]) -> bool:
    total = sum(capacities.values())
    return all(abs(count - len(owners) * capacities[name] / total) < 1 for name, count in held_by(capacities, owners).items())


@settings(max_examples=tries(2000, 300))
@given(CAPACITIES, OWNERS)
def test_quotas_are_parts_by_capacity(capacities: dict[str, int], owners: list[str | None]) -> None:
    quota = quotas(capacities, owners)
    assert sum(quota.values()) == len(owners)
    total = sum(capacities.values())
    assert all(abs(quota[name] - len(owners) * capacities[name] / total) < 1 for name in capacities)


@settings(max_examples=tries(2000, 300))
@given(CAPACITIES, OWNERS)
def test_workers_with_a_node_stay_and_the_others_get_one(capacities: dict[str, int], owners: list[str | None]) -> None:
    placed = assign(capacities, owners)
    assert all(new in capacities if old is None else new == old for old, new in zip(owners, placed, strict=True))
    quota, held, before = quotas(capacities, owners), held_by(capacities, placed), held_by(capacities, owners)
    assert all(held[name] <= max(quota[name], before[name]) for name in capacities if all(name in capacities for name in owners if name))


@settings(max_examples=tries(2000, 300))
@given(CAPACITIES, OWNERS)
def test_moves_end_in_balance_with_as_few_as_possible(capacities: dict[str, int], owners: list[str | None]) -> None:
    placed = assign(capacities, [name if name in capacities else None for name in owners])      # the others give all away at once
    quota, held = quotas(capacities, placed), held_by(capacities, placed)
    least = sum(max(0, quota[name] - held[name]) for name in capacities)
    moves = 0
    while (move := next_move(capacities, placed)) is not None:
        assert placed[move.worker] == move.giver
        placed[move.worker] = move.taker
        moves += 1
        assert moves <= least
    assert moves == least
    assert balanced(capacities, placed)


@settings(max_examples=tries(500, 100))
@given(CAPACITIES, OWNERS, st.randoms())
def test_the_order_of_the_nodes_changes_nothing(capacities: dict[str, int], owners: list[str | None], random) -> None:
    names = list(capacities)
    random.shuffle(names)
    other = {name: capacities[name] for name in names}
    assert assign(capacities, owners) == assign(other, owners)
    assert next_move(capacities, owners) == next_move(other, owners)


def test_no_other_worker_moves_while_a_node_leaves() -> None:
    assert next_move({"a": 1, "b": 1}, ["c", "a", "a", "a", "c"]) is None


def test_a_node_that_comes_back_gets_its_part_from_the_fullest() -> None:
    assert next_move({"a": 1, "b": 1, "c": 1}, ["a", "a", "b", "b", "b", "b"]) == Move(5, "b", "c")


def test_a_rest_moves_nowhere() -> None:
    assert next_move({"a": 1, "b": 1, "c": 1}, ["c", "b", "b", "a"]) is None


def test_nothing_moves_while_a_worker_has_no_node_and_without_nodes() -> None:
    assert next_move({"a": 1, "b": 1}, ["a", "a", None]) is None
    assert next_move({}, ["a"]) is None
    assert assign({}, ["a", None]) == ["a", None]
    assert quotas({}, ["a"]) == {}


@settings(max_examples=tries(2000, 300))
@given(CAPACITIES, OWNERS, st.dictionaries(NAMES, st.sets(st.integers(0, 63))))
def test_a_worker_goes_to_a_node_that_has_not_failed_it_if_there_is_one(capacities: dict[str, int], owners: list[str | None],
                                                                        unable: dict[str, set[int]]) -> None:
    placed = assign(capacities, [name if name in capacities else None for name in owners], unable)
    for worker, name in enumerate(placed):
        able = [one for one in capacities if worker not in unable.get(one, ())]
        assert name in able or not able or name == owners[worker]
    moves = 0
    while (move := next_move(capacities, placed, unable)) is not None:
        assert move.worker not in unable.get(move.taker, ())
        placed[move.worker] = move.taker
        moves += 1
        assert moves <= len(owners)


def test_another_worker_moves_if_the_last_one_cannot_start_there() -> None:
    assert next_move({"a": 1, "b": 1}, ["a"] * 4, {"b": {3}}) == Move(2, "a", "b")
    assert next_move({"a": 1, "b": 1}, ["a"] * 4, {"b": {0, 1, 2, 3}}) is None
    assert next_move({"a": 1, "b": 1, "c": 1}, ["a"] * 4, {"b": {3}}) == Move(3, "a", "c")
