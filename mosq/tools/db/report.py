"""Format the output of `mosq db check` and `mosq db stats`."""

from typing import TYPE_CHECKING, Any

from mosq.tools.db import kinds, show
from mosq.tools.db.read import Unreadable, losses
from mosq.tools.db.state import State

if TYPE_CHECKING:
    from mosq.tools.db.store import Source

LISTED = 20


def oldest_needed(state: State) -> int | None:
    """Return the lsn before which no record is needed any more."""
    lsns = list(state.live)
    for s in state.sessions.values():
        lsns += [s.lsn, *(sub[2] for sub in s.subscriptions.values()), *(lsn for _, lsn in s.released.values())]
    return min((lsn for lsn in lsns if lsn >= 0), default=None)


def figures(source: "Source", state: State, loss: dict[str, Any], now_s: float) -> dict[str, Any]:
    """Return the figures by name, in the order of the report."""
    sessions = state.sessions.values()
    now_ms = int(now_s * 1000)
    most = max(sessions, key=lambda s: s.queue.count, default=None)
    return {
        "directory": source.path,
        "made_by": show.meta(state.meta),
        "sessions": len(sessions),
        "sessions_connected": sum(s.connected for s in sessions),
        "sessions_expired": sum(0 < s.ends_wall_ms < now_ms for s in sessions),
        "subscriptions": sum(len(s.subscriptions) for s in sessions),
        "queued": sum(s.queue.count for s in sessions),
        "queued_most": most.queue.count if most is not None else 0,
        "queued_most_client": show.plain(most.id) if most is not None and most.queue.count else "",
        "awaiting_pubcomp": sum(len(s.released) for s in sessions),
        "awaiting_pubrel": sum(len(s.inbox) for s in sessions),
        "undelivered": len(state.undelivered),
        "retained": len(state.retained),
        "retained_expired": sum(0 < expires < now_ms for _, expires, _ in state.retained.values()),
        "wills": sum(s.will is not None for s in sessions) + len(state.client_wills) + len(state.waiting_wills),
        "messages": len(state.live),
        "records": loss["records"],
        "live_bytes": state.live_bytes(),
        "total_bytes": source.total_bytes(),
        "segments": loss["segments"],
        "first_lsn": loss["tail_lsn"],
        "end_lsn": loss["end_lsn"],
        "oldest_needed_lsn": oldest_needed(state),
    }


def stats_rows(f: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the figures that have a sum over several stores, as lines."""
    most = (
        f" (most: {f['queued_most']:,} for {show.text(f['queued_most_client'].encode())})" if f["queued_most"] else ""
    )
    return [
        (
            "sessions",
            f"{f['sessions']:,}, {f['sessions_connected']:,} of them connected, {f['sessions_expired']:,} expired",
        ),
        ("subscriptions", f"{f['subscriptions']:,}"),
        ("queued", f"{f['queued']:,}{most}"),
        ("QoS 2 under way", f"{f['awaiting_pubcomp']:,} to clients, {f['awaiting_pubrel']:,} from clients"),
        ("retained", f"{f['retained']:,}, {f['retained_expired']:,} of them expired"),
        ("wills", f"{f['wills']:,}"),
        *([("undelivered", f"{f['undelivered']:,}")] if f["undelivered"] else []),
        ("live", f"{show.size(f['live_bytes'])} of {show.size(f['total_bytes'])} in {f['segments']:,} segments"),
    ]


def stats_text(f: dict[str, Any]) -> str:
    oldest = (
        "no record is needed"
        if f["oldest_needed_lsn"] is None
        else f"the oldest needed record is at {f['oldest_needed_lsn']}"
    )
    rows = [
        ("store", f["directory"]),
        *([("made by", f["made_by"])] if f["made_by"] else []),  # only imports record it
        *stats_rows(f),
        ("log", f"lsn {f['first_lsn']} to {f['end_lsn']}, {f['records']:,} records; {oldest}"),
    ]
    return "\n".join(f"{name:<16} {value}" for name, value in rows)


def kinds_text(state: State) -> str:
    return "\n".join(
        f"{kinds.NAMES[kind]:<16} {n:>12,} {show.size(state.bytes_by_kind[kind]):>12}"
        for kind, n in sorted(state.by_kind.items())
    )


def problems(state: State, loss: dict[str, Any], unreadable: Unreadable, live: bool) -> list[str]:
    """Return all problems as lines; [] if there are none."""
    out = losses(loss, live)
    out += [f"lsn {lsn}: {text}" for lsn, text in unreadable.first[:LISTED]]
    if unreadable.n > LISTED:
        out.append(f"and {unreadable.n - LISTED:,} more records that cannot be decoded")
    out += [f"lsn {lsn}: {text}" if lsn >= 0 else text for lsn, text in state.problems[:LISTED]]
    if state.n_problems > LISTED:
        out.append(f"and {state.n_problems - LISTED:,} more contradictions")
    return out
