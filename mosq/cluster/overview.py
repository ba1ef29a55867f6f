"""The state of a cluster, for operators: its nodes, the node of each worker, and what needs attention."""

import time
from typing import NamedTuple

from mosq.cluster.entries import announcement_of, entry_of, run_of
from mosq.cluster.errors import AwayError
from mosq.cluster.requests import Look

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from mosq.cluster.registry import Facts, Registry
    from mosq.cluster.requests import View
    from mosq.cluster.terms import Terms

OBSERVED_BEATS = 4              # a lease survives the loss of three
NO_DOCUMENTS: "Mapping[str, str]" = {}


class Overview(NamedTuple):
    """The state of a cluster. All values are those of JSON."""

    cluster: str
    workers: int
    lease_s: float
    margin_s: float
    replicas: int               # that must confirm a message
    servers: int                # of Redis, when none is away
    nodes: "list[dict[str, Any]]"
    table: list[str | None]     # the node of each worker; None: none, or one that gave no sign of life
    trouble: list[str]


def view_of(registry: "Registry") -> "View":
    """Return what is in Redis. Raises AwayError."""
    view = registry.ask(Look()).view
    if view is None:
        raise AwayError("the cluster was removed from Redis")
    return view


def beats_of(registry: "Registry") -> dict[str, str]:
    """Return the beats of all nodes. Raises AwayError."""
    return view_of(registry).beats


def observed(registry: "Registry", terms: "Terms") -> "tuple[View, set[str]]":
    """Watch the beats until all have changed, for four of them at most. Return the last view, and the nodes that gave a
    sign of life. Raises AwayError."""
    first = view = view_of(registry)
    until_s = time.monotonic() + OBSERVED_BEATS * terms.beat_s
    alive: set[str] = set()
    while alive != set(view.beats) and time.monotonic() < until_s:
        time.sleep(terms.beat_s / 4)
        view = view_of(registry)
        alive = {name for name, beat in view.beats.items() if beat != first.beats.get(name)}
    return view, alive


def takers_of(view: "View", alive: set[str]) -> set[str]:
    """Return the nodes that live and may get workers."""
    return {name for name in alive if not announcement_of(view.announcements[name]).leaving
            and view.away.get(name) != run_of(view.beats[name])}


def overview_of(cluster: str, facts: "Facts", view: "View", alive: set[str], warnings: list[str],
                documents: "Mapping[str, str]" = NO_DOCUMENTS) -> Overview:
    """Return the state of a cluster. `alive`: nodes that gave a sign of life; `warnings`: those about Redis;
    `documents`: the version of the document of dynamic security that each node uses."""
    entries = [entry_of(view.workers.get(worker, "")) for worker in range(facts.workers)]
    owners = [entry.name if run_of(view.beats.get(entry.name, "")) == entry.run else "" for entry in entries]
    table = [name if name in alive else None for name in owners]
    nodes: list[dict[str, Any]] = []
    for name in sorted(view.beats):
        announced = announcement_of(view.announcements[name])
        nodes.append({"name": name, "alive": name in alive, "leaving": announced.leaving,
                      "away": view.away.get(name) == run_of(view.beats[name]),
                      "capacity": announced.capacity, "version": announced.version, "address": announced.address,
                      "workers": [place + 1 for place, owner in enumerate(owners) if owner == name],
                      "unable": [worker + 1 for worker in announced.unable],
                      "dynsec_version": documents.get(name, "")})
    trouble = [*warnings, *(f"The node {name} gives no sign of life." for name in view.beats if name not in alive)]
    trouble += [f"Worker {worker} could not start on the node {node['name']}; its log has the reason."
                for node in nodes if node["alive"] for worker in node["unable"]]
    without = [str(place + 1) for place, name in enumerate(table) if name is None]
    if without:
        trouble.append(f"Worker{'s' if len(without) > 1 else ''} {', '.join(without)}: no living node runs "
                       f"{'them' if len(without) > 1 else 'it'}.")
    return Overview(cluster, facts.workers, facts.terms.lease_s, facts.terms.margin_s, facts.replicas, facts.servers,
                    nodes, table, trouble)
