"""The figures that a worker notes in Redis about itself: its routes, its links, and how far its store lags behind.
Programs that people use read them (`mosq cluster check`, $SYS, /metrics); no node acts on them.

    {"token": TOKEN, "routes": [NUMBER, DIGEST], "links": {"PLACE": [CONNECTED, NUMBER, DIGEST], ...}, "lag_ms": MS,
     "counts": {NAME: NUMBER, ...}, "up_s": SECONDS}

A DIGEST is the sum of the hashes of all filters. The counts have the names of COUNTS; earlier versions wrote none. The
figures of a worker count only with the token that is in force. A node also notes the ends of its workers:

    {"run": RUN, "node": NAME, "times": NUMBER, "how": TEXT}
"""

import json
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from mosq.cluster.entries import Entry

DOWN_MAX = 100                  # links that an overview names
STEADY_S = 60                   # a worker that has served for so long does not end again and again
COUNTS = {"clients": "clients_connected", "sessions": "clients_total", "subscriptions": "subscriptions"}  # of the stats

# besides ValueError: the last ones of an infinite number and of nested lists
_DAMAGED = KeyError, TypeError, AttributeError, OverflowError, RecursionError


class Routes(NamedTuple):
    """Some filters: those that a worker has announced, or those that another one has of it."""

    number: int
    digest: int


class Link(NamedTuple):
    """The link to another worker, and the routes that the worker has of it."""

    connected: bool
    routes: Routes


class Figures(NamedTuple):
    """One worker."""

    token: int
    routes: Routes              # that it has announced
    links: dict[int, Link]      # by the place of the other worker
    lag_ms: int                 # for so long its store has committed nothing although something waits; 0: all is well
    counts: dict[str, int]
    up_s: int                   # since it serves clients


class Ends(NamedTuple):
    """The ends of a worker's processes on one node, without a process between that was steady."""

    run: str                    # of the node's agent
    node: str
    times: int
    how: str                    # the last one ended


def text_of(token: int, links: "Iterable[Mapping[str, int]]", lag_ms: int, stats: "Mapping[str, int]",
            up_s: int) -> str:
    """Return the figures of a worker as they are written. `links`: Engine.link_figures(); `stats`: Engine.stats()."""
    own, to = (0, 0), {}
    for link in links:
        own = link["own_routes"], link["own_digest"]
        to[str(link["place"])] = [int(link["connected"]), link["routes"], link["routes_digest"]]
    counts = {name: stats[key] for name, key in COUNTS.items()}
    return json.dumps({"token": token, "routes": own, "links": to, "lag_ms": lag_ms, "counts": counts,
                       "up_s": up_s}, separators=(",", ":"))


def figures_of(text: str) -> Figures:
    """Read the figures of a worker. Raises ValueError."""
    try:
        found = json.loads(text)
        links = {int(place): Link(bool(up), Routes(int(number), int(digest)))
                 for place, (up, number, digest) in found["links"].items()}
        number, digest = found["routes"]
        counts = {name: int(found.get("counts", {}).get(name, 0)) for name in COUNTS}
        return Figures(int(found["token"]), Routes(int(number), int(digest)), links, int(found["lag_ms"]), counts,
                       int(found.get("up_s", 0)))
    except _DAMAGED as error:
        raise ValueError(f"damaged figures: {error!r}") from None


def text_of_ends(ends: Ends) -> str:
    """Return the ends of a worker as they are written."""
    return json.dumps(ends._asdict(), separators=(",", ":"))


def ends_of(text: str) -> Ends | None:
    """Read the ends of a worker; None if they are damaged."""
    try:
        found = json.loads(text)
        return Ends(str(found["run"]), str(found["node"]), int(found["times"]), str(found["how"]))
    except (ValueError, *_DAMAGED):
        return None


def in_force(owners: "Sequence[Entry | None]", texts: "Mapping[int, str]") -> dict[int, Figures]:
    """Return the figures of the workers that have a node and have noted them since their start."""
    found = {}
    for worker, owner in enumerate(owners):
        try:
            figures = figures_of(texts.get(worker, ""))
        except ValueError:
            continue
        if owner is not None and figures.token == owner.token:
            found[worker] = figures
    return found


def links_down(owners: "Sequence[Entry | None]", figures: "Mapping[int, Figures]") -> list[tuple[int, int]]:
    """Return from which worker to which other one, from 1, a link is down. Nothing is expected of a link to a worker
    without a node."""
    return [(worker + 1, other + 1) for worker, one in figures.items() for other, link in one.links.items()
            if not link.connected and other < len(owners) and owners[other] is not None]


def overview(nodes: "Mapping[str, str]", owners: "Sequence[Entry | None]",
             texts: "Mapping[int, str]") -> "dict[str, Any]":
    """Return the state of a cluster as nodes pass it on to their workers, in values of JSON. `nodes`: the state of
    each."""
    figures = in_force(owners, texts)
    down = [list(pair) for pair in links_down(owners, figures)]
    up = sum(link.connected for one in figures.values() for link in one.links.values())
    return {"nodes": dict(sorted(nodes.items())), "workers": [None if one is None else one.name for one in owners],
            "links_up": up, "links_down": len(down), "down": down[:DOWN_MAX],
            "lag_ms": {str(worker + 1): one.lag_ms for worker, one in figures.items()},
            "counts": {name: sum(one.counts[name] for one in figures.values()) for name in COUNTS},
            "clients": {str(worker + 1): one.counts["clients"] for worker, one in figures.items()}}
