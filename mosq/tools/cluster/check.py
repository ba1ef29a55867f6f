"""Compares what Redis has of a cluster: nodes, table of workers and tokens; the stores of the workers; and the routes
and links that the workers have noted. Changes nothing.

A cluster that serves changes between two readings, so a difference counts only if it stands in two readings with the
same words. The words have no number that a healthy cluster changes, apart from the routes: two workers differ only
while neither of them gets new routes.
"""

import time
from typing import NamedTuple

from mosq.cluster.alike import unlike
from mosq.cluster.entries import LARGE, NEVER, Entry, entry_of, read_announcement, run_of, strange_text
from mosq.cluster.figures import figures_of, in_force
from mosq.cluster.overview import OBSERVED_BEATS, PAUSE_LEASES
from mosq.cluster.scripts import SEGMENT, USES, of_nodes, of_workers, store_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mosq.cluster.registry import Facts, Registry
    from mosq.cluster.stores import File, Store
    from mosq.cluster.terms import Terms

HEADER_BYTES = 4096             # of a segment (cext/store/format.pxd)


class Reading(NamedTuple):
    """All that Redis has of a cluster, nearly at one moment."""

    beats: dict[str, str]
    announcements: dict[str, str]
    table: dict[str, str]
    figures: dict[int, str]
    options: dict[str, str]
    stores: "list[Store]"
    document: str               # stamp of the document of dynamic security
    used: dict[str, str]        # the version that each node uses


def read(registry: "Registry", facts: "Facts", cluster: str) -> Reading:
    """Read everything. Raises AwayError."""
    beats, announcements, table, document = registry.raw()
    noted = registry.noted()
    stores = [registry.store(store_name(cluster, facts.id, number)) for number in range(1, facts.workers + 1)]
    return Reading(beats, announcements, table, of_workers(noted), of_nodes(noted), stores, document,
                   of_nodes(noted, USES))


def alive_of(registry: "Registry", terms: "Terms") -> set[str]:
    """Return the nodes whose beats change, also if other data are damaged. Raises AwayError."""
    first = registry.raw().beats
    alive: set[str] = set()
    until_s = time.monotonic() + OBSERVED_BEATS * terms.beat_s
    while alive != first.keys() and time.monotonic() < until_s:
        time.sleep(terms.beat_s / 4)
        beats = registry.raw().beats
        alive = {name for name, beat in first.items() if beats.get(name, beat) != beat}
    return alive


def standing(registry: "Registry", facts: "Facts", cluster: str, alive: set[str],
             pause: "Callable[[float], object]" = time.sleep) -> list[str]:
    """Return the differences that stand in two readings. `alive`: nodes that gave a sign of life. Raises AwayError."""
    first = differences(read(registry, facts, cluster), facts, cluster, alive)
    if not first:
        return []
    pause(PAUSE_LEASES * facts.terms.lease_s)
    second = set(differences(read(registry, facts, cluster), facts, cluster, alive))
    return [one for one in first if one in second]


def differences(found: Reading, facts: "Facts", cluster: str, alive: set[str]) -> list[str]:
    """Return the differences in one reading."""
    entries, lines = _entries(found, facts)
    owners = [entry if entry.name in alive and run_of(found.beats.get(entry.name, "")) == entry.run else None
              for entry in entries]
    lines += _of_nodes(found, alive)
    lines += _of_documents(found, alive)
    lines += unlike(found.options, {name: run_of(found.beats[name]) for name in alive & found.beats.keys()})
    for worker, entry in enumerate(entries):
        lines += _of_entry(found, worker, entry)
        lines += _of_store(found.stores[worker], f"worker {worker + 1}", entry, owners[worker] is not None)
        lines += _of_sizes(found.stores[worker], store_name(cluster, facts.id, worker + 1), worker + 1)
    return [*lines, *_of_routes(found, owners)]


# ---- nodes and the table

def _of_documents(found: Reading, alive: set[str]) -> "Iterator[str]":
    version = found.document.partition(".")[0]
    for name in sorted(alive & found.used.keys()):
        if found.used[name] != version:
            yield (f"The node {name} uses version {found.used[name]} of the document of dynamic security, and Redis "
                   f"has {f'version {version}' if version else 'none'}.")


def _of_nodes(found: Reading, alive: set[str]) -> "Iterator[str]":
    addresses: dict[str, str] = {}
    for name in sorted(found.beats.keys() | found.announcements.keys()):
        if name not in found.announcements:
            yield f"The node {name} has a beat, and no announcement."
            continue
        announced, unusable = read_announcement(found.announcements[name])
        address = announced.address
        if found.announcements[name].startswith(LARGE):
            yield strange_text(name, found.announcements[name])
            continue
        if unusable:
            yield f"The announcement of the node {name} is damaged, or of a later version of mosq: {unusable}."
            continue
        if name not in found.beats:
            yield f"The node {name} has an announcement, and no beat."
            continue
        run, _, number = found.beats[name].partition(" ")
        if not run or not number.isdecimal():
            yield f"The beat of the node {name} is damaged."
        elif name not in alive:
            yield f"The node {name} gives no sign of life."
        if address and address in addresses:
            yield f"The nodes {addresses[address]} and {name} announce the same address, {address}."
        addresses[address] = name


def _entries(found: Reading, facts: "Facts") -> tuple[list[Entry], list[str]]:
    entries, lines = [NEVER] * facts.workers, []
    for field, text in sorted(found.table.items()):
        if not field.isdecimal() or int(field) >= facts.workers:
            lines.append(f"The table has an entry {field}, which is no worker: it has 0 to {facts.workers - 1}.")
            continue
        try:
            entries[int(field)] = entry_of(text)
        except ValueError:
            lines.append(f"The entry of worker {int(field) + 1} in the table is damaged.")
    return entries, lines


def _of_entry(found: Reading, worker: int, entry: Entry) -> "Iterator[str]":
    if not entry.name:
        yield f"Worker {worker + 1} has no node."
    elif entry.name not in found.beats:
        yield f"Worker {worker + 1} belongs to {entry.name}, which is no node of this cluster."
    elif run_of(found.beats[entry.name]) != entry.run:
        yield f"Worker {worker + 1} belongs to an earlier process of the node {entry.name}."


# ---- stores

def _of_store(store: "Store", whose: str, entry: Entry, lives: bool) -> "Iterator[str]":
    head = store.head
    if not head:
        if entry.token:
            yield f"The store of {whose} is missing: Redis has lost its sessions and messages."
        if store.files:
            yield f"The store of {whose} has files, and no head."
        return
    token, number = head.get("token", ""), head.get("number", "")
    if not token.isdecimal() or not number.isdecimal() or not head.get("owner"):
        yield f"The head of the store of {whose} is damaged."
        return
    if int(token) > entry.token:
        yield f"The store of {whose} was taken under a token that the table of workers does not have: it lost a claim."
    elif int(token) < entry.token and lives:
        yield (f"The process of {whose} has not taken its store: the table has a newer token for the process than the "
               "store has.")
    yield from _of_files(store, whose)


def _of_sizes(store: "Store", name: str, worker: int) -> "Iterator[str]":
    """Compare the contents with the lengths that the head has."""
    for cut in store.cuts(name):
        yield (f"The content of {cut.name} in the store of worker {worker} has {cut.length} bytes, and had "
               f"{cut.expected}: {'its end was cut off' if cut.length else f'the key {cut.key} was deleted'}.")
    for key in store.unnamed(name):
        yield f"The store of worker {worker} has the content {key}, and lacks its name."


def _of_files(store: "Store", whose: str) -> "Iterator[str]":
    contents: dict[str, str] = {}
    for file in sorted(store.files):
        if file.content in contents:
            yield f"Two files of the store of {whose} have one content: {contents[file.content]} and {file.name}."
        contents[file.content] = file.name
    for key in store.gone:
        name = contents.get(key.rpartition(":")[2])
        if name is not None:
            yield f"The content of {name} in the store of {whose} waits for its removal, and the file exists."
    segments = [file for file in store.files if file.name.startswith(SEGMENT)]
    whole = [file for file in segments if file.header]
    for file in sorted(segments):
        if not file.length:
            yield f"The content of {file.name} in the store of {whose} is missing."
        elif not file.header:
            yield f"The content of {file.name} in the store of {whose} is no segment of a store."
    if len({file.header[0] for file in whole}) > 1:
        yield f"The store of {whose} has segments of different stores."
    elif whole:
        yield from _of_chain(whole, whose)


def _of_chain(segments: "list[File]", whose: str) -> "Iterator[str]":
    """Look for a gap: a log is continuous from its tail on, and a segment has no more of it than bytes."""
    tail = max(int(one.header[3]) for one in segments)
    covered = tail
    for one in sorted(segments, key=lambda one: (int(one.header[2]), int(one.header[1]))):
        base = int(one.header[2])
        if base > covered:
            yield (f"The log in the store of {whose} has a gap before {one.name}: a segment is missing, or has lost "
                   "its end.")
            return
        covered = max(covered, base + one.length - HEADER_BYTES)


# ---- routes and links

def _of_routes(found: Reading, owners: "list[Entry | None]") -> "Iterator[str]":
    noted = in_force(owners, found.figures)
    for worker, owner in enumerate(owners):
        if owner is not None and worker not in noted:
            yield f"Worker {worker + 1} {_unnoted(found, worker)}."
    for one, figures in noted.items():
        for other, others in noted.items():
            if one == other:
                continue
            link = figures.links.get(other)
            if link is None or not link.connected:
                yield f"The link from worker {one + 1} to worker {other + 1} is down."
            elif link.routes != others.routes:
                yield (f"Worker {one + 1} has other routes of worker {other + 1} ({link.routes.number}, sum "
                       f"{link.routes.digest}) than that has announced ({others.routes.number}, sum "
                       f"{others.routes.digest}).")


def _unnoted(found: Reading, worker: int) -> str:
    try:
        figures_of(found.figures[worker])
    except KeyError:
        return "has noted no figures: it hangs, or its node has an older version of mosq"
    except ValueError:
        return "has damaged figures"
    return "has noted no figures since its start"
