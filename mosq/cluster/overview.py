"""The state of a cluster, for operators: its nodes, the node of each worker, and what needs attention."""

import time
from typing import NamedTuple

from mosq.cluster.alike import unlike
from mosq.cluster.entries import announcement_of, entry_of, number_of, run_of, strange_text
from mosq.cluster.errors import AwayError
from mosq.cluster.figures import STEADY_S, ends_of, in_force, links_down
from mosq.cluster.requests import Look
from mosq.cluster.scripts import ENDS, LOSS, USES, figures_of_cluster, loss_field, of_nodes, of_workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from mosq.cluster.entries import Entry
    from mosq.cluster.registry import Facts, Registry
    from mosq.cluster.requests import View
    from mosq.cluster.terms import Terms

OBSERVED_BEATS = 4              # a lease survives the loss of three
NO_DOCUMENTS: "Mapping[str, str]" = {}
PAUSE_LEASES = 1.5              # a difference that stands for so long is one: workers note figures twice in each lease
ENDS_MIN = 2                    # ends of a worker that are reported
LINKS_MAX = 10                  # links that one line names


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


def node_of(registry: "Registry", terms: "Terms", worker: int) -> str:
    """Return the living node of a worker, from 0; "" if it has none. Watches that node only, and no longer than it
    needs for a sign of life. Raises AwayError."""
    def owner(view: "View") -> str:
        entry = entry_of(view.workers.get(worker, ""))
        return entry.name if run_of(view.beats.get(entry.name, "")) == entry.run else ""

    first = owner(view_of(registry))
    if not first:
        return ""
    view, alive = observed(registry, terms, {first})
    name = owner(view)
    return name if name in alive else ""


def observed(registry: "Registry", terms: "Terms", names: set[str] | None = None) -> "tuple[View, set[str]]":
    """Watch the beats until all have changed, or those of `names`, for four of them at most. Return the last view, and
    the nodes that gave a sign of life. Raises AwayError."""
    first = view = view_of(registry)
    until_s = time.monotonic() + OBSERVED_BEATS * terms.beat_s
    alive: set[str] = set()
    while not alive >= (set(view.beats) if names is None else names) and time.monotonic() < until_s:
        time.sleep(terms.beat_s / 4)
        view = view_of(registry)
        alive = {name for name, beat in view.beats.items() if beat != first.beats.get(name)}
    return view, alive


def takers_of(view: "View", alive: set[str]) -> set[str]:
    """Return the nodes that live and may get workers."""
    return {name for name in alive if not announcement_of(view.announcements[name]).leaving
            and view.away.get(name) != run_of(view.beats[name])}


def owners_of(facts: "Facts", view: "View", alive: set[str]) -> "list[Entry | None]":
    """Return the entry of each worker that has a living node."""
    entries = [entry_of(view.workers.get(worker, "")) for worker in range(facts.workers)]
    return [entry if entry.name in alive and run_of(view.beats.get(entry.name, "")) == entry.run else None
            for entry in entries]


def settled(registry: "Registry", facts: "Facts",
            announce: "Callable[[str], object]") -> "tuple[View, set[str], list[str], dict[str, str]]":
    """Return the last view, the nodes that gave a sign of life, what their workers have noted that needs attention, and
    the version of the document of dynamic security that each node uses. What passes by itself counts only if it
    stands. Raises AwayError."""
    until_s = None
    while True:
        view, alive = observed(registry, facts.terms)
        noted = registry.noted()
        owners = owners_of(facts, view, alive)
        passing = [*_starting(facts, view, alive, owners), *_not_linked(owners, noted)]
        if not passing or (until_s is not None and time.monotonic() >= until_s):
            runs = {name: run_of(view.beats[name]) for name in alive}
            serving = [worker + 1 for worker in in_force(owners, of_workers(noted))]
            return view, alive, [*unlike(of_nodes(noted), runs), *registry.deleted_stores(facts, serving),
                                 *_lost(registry.cluster, noted), *_ending(owners, noted),
                                 *passing], of_nodes(noted, USES)
        if until_s is None:
            until_s = time.monotonic() + PAUSE_LEASES * facts.terms.lease_s
            announce(f"Waiting for nodes, workers and links for up to {PAUSE_LEASES * facts.terms.lease_s:g} seconds.")


def _starting(facts: "Facts", view: "View", alive: set[str], owners: "list[Entry | None]") -> "Iterator[str]":
    """Return the nodes that may get workers, and do not start them yet: since they have joined, they have not watched
    the others for lease and margin. A node that has workers has done so."""
    terms = facts.terms
    for name in sorted(takers_of(view, alive) - {owner.name for owner in owners if owner is not None}):
        if ((number_of(view.beats[name]) or 0) - 1) * terms.beat_s < terms.death_s:
            yield (f"The node {name} has just joined, and does not start workers yet: it watches the other nodes for "
                   f"{terms.death_s:g} seconds first.")


def _lost(cluster: str, noted: "Mapping[str, str]") -> "Iterator[str]":
    for worker, text in sorted(of_workers(noted, LOSS).items()):
        yield (f"Worker {worker} may have lost acknowledged messages: {text}. To remove this line: redis-cli HDEL "
               f"'{figures_of_cluster(cluster)}' '{loss_field(worker - 1)}'")


def _ending(owners: "list[Entry | None]", noted: "Mapping[str, str]") -> "Iterator[str]":
    figures = in_force(owners, of_workers(noted))
    for number, text in sorted(of_workers(noted, ENDS).items()):
        ends, owner = ends_of(text), owners[number - 1] if number <= len(owners) else None
        steady = number - 1 in figures and figures[number - 1].up_s >= STEADY_S
        if ends is not None and owner is not None and owner.run == ends.run and ends.times >= ENDS_MIN and not steady:
            yield (f"Worker {number} has ended {ends.times} times on the node {ends.node}, and has not served for "
                   f"{STEADY_S} seconds since: {ends.how}. The log of the node has the reasons.")


def _not_linked(owners: "list[Entry | None]", noted: "Mapping[str, str]") -> "Iterator[str]":
    """Return the workers that do not serve clients, and the links that are down. Workers start again, and links open
    again, within a moment, so most of it passes."""
    figures = in_force(owners, of_workers(noted))
    for worker, owner in enumerate(owners):
        if owner is not None and worker not in figures:
            yield f"Worker {worker + 1} does not serve clients yet on the node {owner.name}."
    down = links_down(owners, figures)
    if down:
        names = ", ".join(f"{one} to {other}" for one, other in down[:LINKS_MAX])
        more = f" and {len(down) - LINKS_MAX} others" if len(down) > LINKS_MAX else ""
        yield (f"{len(down)} link{'s' if len(down) > 1 else ''} between workers {'are' if len(down) > 1 else 'is'} "
               f"down: {names}{more}. The logs of their nodes have the reason.")


def overview_of(cluster: str, facts: "Facts", view: "View", alive: set[str], warnings: list[str],
                documents: "Mapping[str, str]" = NO_DOCUMENTS) -> Overview:
    """Return the state of a cluster. `alive`: nodes that gave a sign of life; `warnings`: those about Redis;
    `documents`: the version of the document of dynamic security that each node uses."""
    owners = ["" if one is None else one.name for one in owners_of(facts, view, set(view.beats))]
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
    trouble += [line for name in sorted(view.beats) if view.announcements[name]
                and (line := strange_text(name, view.announcements[name]))]
    trouble += [f"Worker {worker} could not start on the node {node['name']}; its log has the reason."
                for node in nodes if node["alive"] for worker in node["unable"]]
    without = [str(place + 1) for place, name in enumerate(table) if name is None]
    if without:
        trouble.append(f"Worker{'s' if len(without) > 1 else ''} {', '.join(without)}: no living node runs "
                       f"{'them' if len(without) > 1 else 'it'}.")
    return Overview(cluster, facts.workers, facts.terms.lease_s, facts.terms.margin_s, facts.replicas, facts.servers,
                    nodes, table, trouble)
