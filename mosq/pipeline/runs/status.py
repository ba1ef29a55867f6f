"""Report the progress of the tables: the state after the last batch, and the marks of the journal now.

This module starts no Spark and takes no lock, so it works while `run` runs and while it does not.
"""

import datetime
import time
from typing import TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError, presence
from mosq.pipeline.lake.places import are_made, lost, place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.rows.found import labelled
from mosq.pipeline.runs import progress, tending
from mosq.tools.table import shown

if TYPE_CHECKING:
    from mosq.pipeline.settings import Settings

SHOWN = 20


def lag(settings: "Settings", now: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return for each "node/stream" its rows in bronze, the rows behind the last batch, and the delay in seconds.

    The delay is the time between the newest row of the journal and the newest row of bronze.
    """
    found = {}
    for name, stream in progress.streams(settings).items():
        rows = behind = 0
        newest = ours = 0
        for shard, mark in enumerate(stream.marks()):
            at = now["shards"].get(f"{name}/{shard}", {"next": mark.first_seq, "rows": 0, "time_us": 0})
            rows += at["rows"]
            behind += max(0, mark.seq - max(at["next"], mark.first_seq))
            newest, ours = max(newest, mark.time_us), max(ours, at["time_us"])
        found[name] = {
            "rows": rows,
            "behind": behind,
            "behind_s": round((newest - ours) / 1e6, 3) if behind and ours else None if behind else 0.0,
        }
    return found


def status(settings: "Settings", with_audit: bool = False) -> dict[str, Any]:
    """Return the state of tables and streams as a dictionary for JSON; with_audit adds totals over all sessions."""
    if are_made(settings) and Table.open(place_of(settings), progress.PROGRESS) is None:
        raise lost(settings, progress.PROGRESS)
    now = progress.after(settings)
    found: dict[str, Any] = {
        "settings": str(settings.file),
        "tables": settings.tables,
        "batch": now["batch"],
        "at": now.get("at"),
        "rows": now["rows"],
        "stored": _stored(settings),
        "late": now["late"],
        "events": now["events"],
        "keyless": now["keyless"],
        "notes": now["notes"],
        "quarantine": now["quarantine"],
        "schemas": now["schemas"],
        "new_fields": now["fields"],
        "pending": now["pending"],
        "audit": now["audit"],
        "devices": presence.summary(settings),
    }
    try:
        found["streams"] = lag(settings, now)
    except (MosqPipelineError, OSError, ValueError) as error:
        found["streams"], found["journal_error"] = {}, str(error)
    if with_audit:
        found["audit"] = now["audit"] | _audit(settings)
    return found


def _stored(settings: "Settings") -> dict[str, int]:
    """Return the number of rows that each table has now, from the logs of the tables."""
    try:
        return {table.name: table.rows() for table in tending.existing(settings) if table.name != progress.PROGRESS}
    except MosqPipelineError:  # there are none, or their storage is not there
        return {}


def unbalanced(settings: "Settings") -> list[str]:
    """Return which sessions do not add up, and why; at most SHOWN."""
    examples: list[str] = _audit(settings)["examples"]
    return examples


def _audit(settings: "Settings") -> dict[str, Any]:
    """Return the last counters over all sessions, and the sessions that do not add up."""
    import pyarrow.compute as pc

    from mosq.pipeline import audit

    last = audit.of_sessions(audit.all_sessions(settings))
    bad = last.filter(last["wrong"])
    return {
        "sessions": last.num_rows,
        "sessions_wrong": bad.num_rows,
        "totals": {name: pc.sum(last[name]).as_py() or 0 for name in audit.COUNTERS},
        "examples": [audit.why(row) for row in bad.slice(0, SHOWN).to_pylist()],
    }


def ago(seconds: float) -> str:
    """Format a duration with one unit."""
    for length, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def text(found: dict[str, Any]) -> str:
    """Format the result of `status` for the terminal."""
    if found["batch"] < 0:
        head = f"{found['tables']}: no batch yet; `mosq pipeline run --once` reads the records."
    else:
        head = f"{found['tables']}: batch {found['batch']:,}, {ago(time.time() - found['at'])} ago."
    lines = [head, ""]
    lines += [f"Journal: {found['journal_error']}"] if "journal_error" in found else []
    for name, stream in found["streams"].items():
        behind = f"{stream['behind']:,} behind" if stream["behind"] else "nothing behind"
        seconds = f" ({stream['behind_s']:.1f} s)" if stream["behind_s"] else ""
        lines.append(f"stream {name:<24} {stream['rows']:>14,} rows read, {behind}{seconds}")
    lines += [f"table  {name:<24} {n:>14,} rows" for name, n in sorted(found["stored"].items())]
    if found["late"]:
        lines.append(
            f"late: {found['late']:,} rows came after their window was complete; they are in bronze and silver, not in"
            " the windows of gold"
        )
    for name, events in sorted(found["events"].items()):
        if events["late"]:
            lines.append(f"silver {name}: {events['late']:,} late rows, which gold/telemetry has too")
        if events["misdated"]:
            lines.append(
                f"silver {name}: {events['misdated']:,} rows have no time, or one far from the broker's; they are in"
                " gold/telemetry by the broker's time"
            )
    for name, n in sorted(found["keyless"].items()):
        lines.append(f"silver {name}: {n:,} rows have null in their key, so they are not compared with others")
    for name, notes in sorted(found["notes"].items()):
        lines += [f"silver {name}: {n:,} x {note}" for note, n in sorted(notes.items(), key=lambda one: -one[1])]
    for reason, n in sorted(found["quarantine"].items(), key=lambda one: -one[1]):
        lines.append(f"quarantine: {n:,} x {reason}")
    for name, waiting in sorted(found["pending"].items()):
        lines.append(f"silver {name}: {waiting['rows']:,} messages wait for a schema; they are in bronze")
    for name, fields in sorted(found["new_fields"].items()):
        most = sorted(fields.items(), key=lambda one: -one[1])[:SHOWN]
        listed = ", ".join(f"{labelled(field)} ({n:,})" for field, n in most)
        lines.append(shown(f"silver {name}: fields that came after its schema: {listed}"))
    return "\n".join(lines + _device_lines(found["devices"]) + _audit_lines(found["audit"]))


def _device_lines(found: dict[str, Any] | None) -> list[str]:
    if not found or not found["clients"] + found["devices"]:
        return []
    lines = []
    if found["clients"]:
        lines.append(f"clients: {found['clients'] - found['offline']:,} online, {found['offline']:,} offline")
    lines += [
        f"  {one['client_id']} (node {one['node']}), offline since {_moment(one['since'])}"
        for one in found["offline_clients"]
    ]
    silence = f"for more than {presence.SILENT_FACTOR} of their mean intervals"
    lines.append(f"devices: {found['devices']:,} clients on a topic, {found['silent']:,} silent {silence}")
    lines += [
        f"  {one['client_id']} on {one['topic']} (node {one['node']}), silent since {_moment(one['last_seen'])}"
        for one in found["silent_devices"]
    ]
    return [shown(line) for line in lines]


def _moment(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _audit_lines(found: dict[str, Any]) -> list[str]:
    wrong = f"ALARM: {found['wrong']:,} do not add up" if found["wrong"] else ""
    if not wrong and found.get("sessions_wrong"):
        wrong = f"ALARM: {found['sessions_wrong']:,} sessions whose counters went down"
    lines = [f"audit: {found['rows']:,} rows, {wrong or 'all add up'}"]
    if found["lost_events"]:
        lines.append(f"audit: {found['lost_events']:,} events are lost, so the audit is not complete")
    if "sessions" in found:
        totals = ", ".join(f"{name} {n:,}" for name, n in found["totals"].items())
        lines.append(f"audit: {found['sessions']:,} sessions: {totals}")
    return lines + [f"  {shown(line)}" for line in found["examples"]]
