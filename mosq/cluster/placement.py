"""Which node runs which worker. Pure functions: every node computes the same result from the same table.

A node's quota is its part of the workers by capacity, within one. Workers stay where they are: only those without a
node are placed, and one worker moves at a time from a node above its quota to one below it. A node that may not get
workers gives all of them away at once.
"""

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

NONE_UNABLE: "Mapping[str, Collection[int]]" = {}


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


def assign(capacities: "Mapping[str, int]", owners: "Sequence[str | None]",
           unable: "Mapping[str, Collection[int]]" = NONE_UNABLE) -> "list[str | None]":
    """Return the node of each worker, when each worker without one (None) goes to the node that lacks most.

    `capacities`: nodes that may get workers. `owners`: the node of each worker, which may be another one. `unable`:
    workers that a node could not start; they go to such a node only if no other one is left."""
    placed = list(owners)
    if not capacities or None not in placed:
        return placed
    quota, held = quotas(capacities, owners), held_by(capacities, owners)
    for worker, name in enumerate(placed):
        if name is None:
            taker = _taker(quota, held, able_for(worker, capacities, unable) or capacities)
            placed[worker] = taker
            held[taker] += 1
    return placed


def next_move(capacities: "Mapping[str, int]", owners: "Sequence[str | None]",
              unable: "Mapping[str, Collection[int]]" = NONE_UNABLE) -> Move | None:
    """Return the next worker that shall move to a node that lacks one, while all have a node; None: they are where they
    shall be, as far as nodes can start them, or a node that may not get workers gives its own away first."""
    if not all(name in capacities for name in owners):
        return None
    quota, held = quotas(capacities, owners), held_by(capacities, owners)
    for giver in sorted(held, key=lambda name: (quota[name] - held[name], name)):
        if held[giver] <= quota[giver]:
            break
        for worker in reversed([worker for worker, name in enumerate(owners) if name == giver]):
            lacking = [name for name in able_for(worker, capacities, unable) if held[name] < quota[name]]
            if lacking:
                return Move(worker, giver, _taker(quota, held, lacking))
    return None


def able_for(worker: int, capacities: "Mapping[str, int]", unable: "Mapping[str, Collection[int]]") -> list[str]:
    """Return the nodes that may get a worker and have not failed to start it."""
    return [name for name in capacities if worker not in unable.get(name, ())]


def _taker(quota: dict[str, int], held: dict[str, int], names: "Iterable[str]") -> str:
    return min(names, key=lambda name: (held[name] - quota[name], name))
