"""Delete what newer versions of a table do not need: replaced files, old logs, and files that no version names.

The rule: a file of rows is deleted if a commit that is older than the table's kept_s removed it, no younger commit
names it, and the newest version does not. So a reader has kept_s seconds for a version that is not the newest any
more. The log is kept as far back as such a version needs it. Rows are deleted before the log that names them, so a
killed deletion is finished by the next one.
"""

import json
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from mosq.pipeline.lake.table import Table, _hooks, plain

if TYPE_CHECKING:
    from collections.abc import Iterable

LOG = "_delta_log"
OF_VERSION = re.compile(r"(\d{20})\.(.+)")
UNKNOWN_KEPT_S = 24 * 3600  # a file that no version names: a batch or rebuild may still work on it


@dataclass(frozen=True)
class _Entry:
    """Describe a file of the log."""

    path: str
    version: int
    kind: str  # "json", "checkpoint.parquet" or another end of the name
    at: float

    @property
    def is_commit(self) -> bool:
        return self.kind == "json"

    @property
    def is_checkpoint(self) -> bool:
        return self.kind == "checkpoint.parquet"


def clean(table: Table, full: bool = False, kept_s: float | None = None) -> int:
    """Write a checkpoint of the log, delete replaced files and old logs; return how many files of rows.

    `full` also deletes files that no version names: what killed batches and rebuilds left.
    """
    with plain(table.place.uri):
        table.refresh()
        log = _log(table)
        if table.version > max((entry.version for entry in log if entry.is_checkpoint), default=-1):
            table.handle.create_checkpoint()
            log = _log(table)
        before = time.time() - (table.kept_s if kept_s is None else kept_s)
        n = _delete_replaced(table, log, before)
        _delete_log(table, log, before)
        if full:
            gone = table.reopen().handle.vacuum(
                retention_hours=UNKNOWN_KEPT_S // 3600,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
                **_hooks(),
            )
            n += len(gone)
        table.refresh()
    return n


def _log(table: Table) -> list[_Entry]:
    """Return the files of the log that belong to a version."""
    from pyarrow import fs

    files, base = table.place.filesystem()
    found = []
    for info in files.get_file_info(fs.FileSelector(f"{base}/{LOG}" if base else LOG)):
        name = OF_VERSION.fullmatch(info.base_name)
        if name is not None and info.mtime is not None:
            found.append(_Entry(info.path, int(name[1]), name[2], info.mtime.timestamp()))
    return found


def _delete_replaced(table: Table, log: list[_Entry], before: float) -> int:
    removed: set[str] = set()
    named = set(table.adds()["path"].to_pylist())
    for entry in log:
        if not entry.is_commit:
            continue
        for kind, path in _paths(table, entry):
            if entry.at >= before:
                named.add(path)
            elif kind == "remove":
                removed.add(path)
    return _delete(table, removed - named)


def _paths(table: Table, entry: _Entry) -> list[tuple[str, str]]:
    """Return which files a commit adds and removes."""
    files, _ = table.place.filesystem()
    with files.open_input_stream(entry.path) as stream:
        lines = stream.read().splitlines()
    found: list[tuple[str, str]] = []
    for line in lines:
        action: dict[str, Any] = json.loads(line)
        found += [(kind, unquote(action[kind]["path"])) for kind in ("add", "remove") if kind in action]
    return found


def _delete(table: Table, paths: "Iterable[str]") -> int:
    files, base = table.place.filesystem()
    n = 0
    for path in paths:
        try:
            files.delete_file(f"{base}/{path}" if base else path)
            n += 1
        except FileNotFoundError:
            continue
    return n


def _delete_log(table: Table, log: list[_Entry], before: float) -> None:
    """Delete the log before the newest checkpoint from which each version of the kept time can be read."""
    old = max((entry.version for entry in log if entry.is_commit and entry.at < before), default=-1)
    first = max((entry.version for entry in log if entry.is_checkpoint and entry.version <= old), default=-1)
    files, _ = table.place.filesystem()
    for entry in sorted(log, key=lambda entry: entry.version):  # the oldest first: a kill leaves no hole
        if entry.version < first:
            try:
                files.delete_file(entry.path)
            except FileNotFoundError:
                continue
