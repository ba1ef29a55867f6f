"""Write locust.json, the results of a load test, for `mosq bench report` and for people.

The file is replaced as a whole at intervals, so that it is valid however locust ends.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1


def bucket(ms: float) -> float:
    """Round to two significant digits, also below 10 ms, unlike locust: a broker on the same machine answers in 0.2 ms.
    """
    if ms < 1:
        return round(ms, 2)
    if ms < 10:
        return round(ms, 1)
    if ms < 100:
        return round(ms)
    return round(ms, -(len(str(int(ms))) - 2))


def entries(stats: Any, seconds: float) -> list[dict[str, Any]]:
    """Return a row for each line of locust's table."""
    rows = []
    for (name, method), entry in sorted(stats.entries.items(), key=lambda item: (item[0][0], item[0][1])):
        if not entry.num_requests:
            continue
        rows.append({
            "type": method, "name": name, "requests": entry.num_requests, "failures": entry.num_failures,
            "rate": entry.num_requests / seconds if seconds > 0 else 0.0, "mean_ms": entry.avg_response_time,
            **{f"p{percent}_ms": min(entry.get_response_time_percentile(percent / 100), entry.max_response_time)
               for percent in (50, 95, 99)},
            "max_ms": entry.max_response_time})
    return rows


def errors(stats: Any) -> list[dict[str, Any]]:
    """Return the errors of locust's table, the most frequent first."""
    rows = [{"type": error.method, "name": error.name, "error": error.parse_error(error.error),
             "count": error.occurrences} for error in stats.errors.values()]
    return sorted(rows, key=lambda row: -row["count"])


def write(path: Path, result: dict[str, Any]) -> None:
    """Replace the file of results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps({"format": FORMAT, **result}, indent=1) + "\n")
    os.replace(part, path)


def read(path: Path) -> dict[str, Any] | None:
    """Return the results of a file, or None if it is missing or not valid."""
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) else None
