"""Which node runs which worker. Pure functions: every node computes the same result from the same table.

A node's quota is its part of the workers by capacity, within one. Workers stay where they are: only those without a
node are placed, and one worker moves at a time from a node above its quota to one below it.
"""

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Move(NamedTuple):
    """A worker that shall go from one node to another."""

    worker: int
    giver: str
    taker: str


def held_by(capacities: "Mapping[str, int]", owners: "Sequence[str | None]") -> dict[str, int]:
    """Return the number of workers of each node that may have some."""
    held = dict.fromkeys(capacities, 0)
    for name in owners:
        if name is not None and name in held:
            held[name] += 1
    return held


def quotas(capacities: "Mapping[str, int]", owners: "Sequence[str | None]") -> dict[str, int]:
    """Return how many workers each node shall have. Their sum is the number of workers; each differs from its exact
    part by less than one. The rest goes to nodes that have more than the whole number already, so that nothing moves
    for it, then by the fraction."""
    total, count = sum(capacities.values()), len(owners)
    if not total:
        return {}
    held = held_by(capacities, owners)
    whole = {name: count * capacity // total for name, capacity in capacities.items()}
    order = sorted(capacities, key=lambda name: (held[name] <= whole[name], -(count * capacities[name] % total), name))
    for name in order:
        if sum(whole.values()) == count:
            break
        if count * capacities[name] % total:
            whole[name] += 1
    return whole


def assign(capacities: "Mapping[str, int]", owners: "Sequence[str | None]") -> "list[str | None]":
    """Return the node of each worker, when each worker without one (None) goes to the node that lacks most.

    `capacities`: nodes that may get workers. `owners`: the node of each worker, which may be another one."""
    placed = list(owners)
    if not capacities or None not in placed:
        return placed
    quota, held = quotas(capacities, owners), held_by(capacities, owners)
    for worker, name in enumerate(placed):
        if name is None:
            taker = _taker(quota, held)
            placed[worker] = taker
            held[taker] += 1
    return placed


def next_move(capacities: "Mapping[str, int]", owners: "Sequence[str | None]") -> Move | None:
    """Return the next worker that shall move, while all have a node; None: they are where they shall be. Nodes that
    may not get workers give theirs away first."""
    if not capacities or None in owners:
        return None
    quota, held = quotas(capacities, owners), held_by(capacities, owners)
    leaving = [(name, worker) for worker, name in enumerate(owners) if name is not None and name not in capacities]
    if leaving:
        giver, worker = min(leaving)
        return Move(worker, giver, _taker(quota, held))
    giver = min(held, key=lambda name: (quota[name] - held[name], name))
    if held[giver] <= quota[giver]:
        return None
    worker = max(worker for worker, name in enumerate(owners) if name == giver)
    return Move(worker, giver, _taker(quota, held))


def _taker(quota: dict[str, int], held: dict[str, int]) -> str:
    return min(quota, key=lambda name: (held[name] - quota[name], name))
