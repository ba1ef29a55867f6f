"""Decides at the start what counts: the store, or a file of Mosquitto that lies where Mosquitto would look for it.

  store | file                                       | what happens
  ------+--------------------------------------------+------------------------------------------------------------
  no    | there                                      | the file becomes the store
  yes   | written or imported by mosq                | the store counts; it may be newer
  yes   | written by mosq, and now gone              | the store is set aside, and the broker starts empty
  yes   | changed after mosq wrote or imported it    | the store is set aside, and the file becomes the store
  yes   | the same, but empty or unreadable          | the store counts
  yes   | never seen by this store                   | the store counts

Nothing is deleted: a store that is set aside stays in a folder below its own, and a file that mosq has not written
keeps its content under another name when mosq replaces it (mosq/tools/db/mosquitto_save.py).
Imported before the broker listens, so it imports almost nothing.
"""

import os

from mosq.config.plugin import sqlite_file, sqlite_imports, sqlite_keeps
from mosq.log_types import ERROR, NOTICE, WARNING
from mosq.tools.db.mark import EXPORTED, LAYOUT, RESTORED, WORKER, former_line, identity, read_mark, remove_mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.config.model import Config
    from mosq.tools.db.mosquitto_import import Counts

    Report = Callable[[int, str], None]

SQLITE_NAME = "mosquitto.sqlite3"
SEGMENT = "segment."            # beginning of the names of a store's files


def mosquitto_file(config: "Config") -> str | None:
    """Return the path of Mosquitto's own file; None if Mosquitto would not use one with this configuration, or if this
    is a worker: the parent writes the file, and takes it over."""
    if not config.persistence or config.worker:
        return None
    return os.path.abspath(os.path.join(config.persistence_location or "", config.persistence_file))


def sqlite_database(config: "Config") -> str | None:
    """Return the path of the database of Mosquitto's plugin persist-sqlite; None if it would not use one, or if the
    plugin's library is there: it restores its content itself."""
    return _database(config) if sqlite_imports(config) else None


def database_kept(config: "Config") -> str | None:
    """Return the path of the database that Mosquitto's library of persist-sqlite keeps current; None if there is
    none."""
    return None if sqlite_imports(config) else _database(config)


def _database(config: "Config") -> str | None:
    if not sqlite_keeps(config):
        return None
    return os.path.abspath(sqlite_file(config) or os.path.join(config.persistence_location or "", SQLITE_NAME))


def settle(config: "Config", store: str, report: "Report") -> None:
    """Apply the table above before the store is opened. Raises OSError, and ValueError for a file that cannot become
    the store."""
    path = mosquitto_file(config)
    if not has_stores(store):
        files = [one for one in (path, sqlite_database(config)) if one]
        for one in files:
            wrong = not_a_file(one)
            if wrong:
                report(WARNING, f"Warning: {wrong}, so there is nothing to take over from it.")
        _first(config, store, [one for one in files if has_bytes(one)], report)
    elif path is not None and config.mosquitto_db:
        _compare(config, store, path, report)
    elif os.path.isdir(store):
        remove_mark(store)      # while mosq does not write the file, its absence means nothing


def may_take_over(config: "Config", store: str) -> bool:
    """Return whether `settle` may need LOADED_FOR_TAKE_OVER (mosq/server/process.py). Called with root's rights,
    because the broker's user may not be able to read the Python installation."""
    path = mosquitto_file(config)
    mark = read_mark(store, path) if path is not None else None
    try:
        found = identity(path) if path is not None else None
    except OSError:             # the store's folder cannot be used either
        return False
    if mark is not None and found in mark.files:
        return False
    return found is not None or mark is not None or has_bytes(sqlite_database(config))


def has_segments(store: str) -> bool:
    """Return whether a store is there."""
    try:
        return any(name.startswith(SEGMENT) for name in os.listdir(store))
    except FileNotFoundError:
        return False


def has_stores(store: str) -> bool:
    """Return whether a store is there, or the stores of workers."""
    if has_segments(store):
        return True
    names = os.listdir(store) if os.path.isdir(store) else []
    return LAYOUT in names and any(has_segments(os.path.join(store, name)) for name in names if name.startswith(WORKER))


def has_bytes(path: str | None) -> bool:
    """Return whether this is a file that is not empty."""
    return path is not None and os.path.isfile(path) and os.path.getsize(path) > 0


def not_a_file(path: str) -> str:
    """Return why a name that is there is not that of a file; "" if it is, or if there is no such name."""
    if os.path.isfile(path) or not os.path.lexists(path):
        return ""
    return f"{path} is not a file" if os.path.exists(path) else f"{path} is a link to a file that is missing"


def _first(config: "Config", store: str, files: list[str], report: "Report") -> None:
    if not files:
        if os.path.isdir(store):
            remove_mark(store)
        return
    for path in files[1:]:
        report(WARNING, f"Warning: {path} exists too, and is not taken over. To use it instead, stop mosq and run: "
                        f"mosq db import --force {path} {store}")
    try:
        take_over(config, store, files[0], report)
    except (OSError, ValueError) as error:
        from mosq.tools.db.store import reason

        raise ValueError(f"{reason(error)}. {files[0]} cannot be taken over, and nothing was changed."
                         f"{_advice(error)}") from None


def _advice(error: Exception) -> str:
    """Return what to do when a file cannot become the store; "" if the error says it."""
    from errno import EACCES, EDQUOT, ENOSPC, EPERM

    from mosq.tools.db.mosquitto_file import FormatError, InUseError

    number, text = getattr(error, "errno", None), str(error)
    if isinstance(error, InUseError):
        return ""
    if number in (ENOSPC, EDQUOT) or any(os.strerror(full) in text for full in (ENOSPC, EDQUOT)):
        return " Free as much space as it has bytes, and start again."
    if number in (EACCES, EPERM):
        return " Give it to the user that the broker runs as (chown), and start again."
    if isinstance(error, FormatError):
        return " Repair it, or move it away to start without its sessions and messages."
    return ""


def _compare(config: "Config", store: str, path: str, report: "Report") -> None:
    mark, found = read_mark(store, path), identity(path)
    if mark is None:
        if found is not None:
            report(WARNING, f"Warning: {path} is not from this store. The store {store} is used. The next save keeps "
                            f"the file as {path}.kept. To use the file instead, stop mosq and run: "
                            f"mosq db import --force {path} {store}")
    elif found is None:
        if mark.how == EXPORTED:
            _set_aside(store, path, report)
    elif not os.path.isfile(path):
        report(WARNING, f"Warning: {not_a_file(path)}. The store {store} is used.")
    elif found not in mark.files:
        _changed(config, store, path, report)


def _set_aside(store: str, path: str, report: "Report") -> None:
    from mosq.tools.db.store import set_aside

    kept = set_aside(store)
    remove_mark(store)
    names = (f"{WORKER}*, {LAYOUT} and {RESTORED}" if os.path.exists(os.path.join(kept, LAYOUT)) else f"{SEGMENT}*")
    report(WARNING, f"Warning: {path} was removed, so the broker starts without sessions and retained messages. The "
                    f"old store is now in {kept}; to use it again, stop mosq, remove {names} from {store} and move "
                    "what is in that folder to their place.")
    _report_former(store, report)


def _changed(config: "Config", store: str, path: str, report: "Report") -> None:
    from mosq.tools.db.mosquitto_import import is_empty

    try:
        if is_empty(path):
            report(WARNING, f"Warning: {path} was changed by another program and has no sessions and no retained "
                            f"messages. The store {store} is used.")
            return
        take_over(config, store, path, report)
    except (OSError, ValueError) as error:
        report(ERROR, f"Error: {path} was changed by another program and cannot be taken over: {error}. The store "
                      f"{store} is used.")


def take_over(config: "Config", store: str, path: str, report: "Report") -> None:
    """Make a store of a file of Mosquitto. Raises OSError and ValueError; then nothing has changed."""
    import time

    from mosq.tools.db.mosquitto_import import import_file
    from mosq.tools.db.store import StoreError

    report(NOTICE, f"Taking over {path}.")
    try:
        counts, kept, warnings = import_file(path, store, time.time(), bridge_ids(config))
    except StoreError as error:
        raise OSError(str(error)) from None
    _report_counts(path, counts, warnings, report)
    if kept:
        report(WARNING, f"Warning: {path} was changed by another program after mosq had written it, so its content "
                        f"counts. The old store is now in {kept}.")
        _report_former(store, report)


def bridge_ids(config: "Config") -> list[bytes]:
    """Return the client ids of the configured bridges."""
    if not config.bridges:
        return []
    return [bridge.local_id(os.uname().nodename).encode("utf-8", "surrogateescape") for bridge in config.bridges]


def _report_former(store: str, report: "Report") -> None:
    line = former_line(store)
    if line:
        report(WARNING, f"Warning: {line} Remove those that you no longer need.")


def _report_counts(path: str, counts: "Counts", warnings: list[str], report: "Report") -> None:
    for line in warnings[:20]:
        report(WARNING, f"Warning: {line}")
    if len(warnings) > 20:
        report(WARNING, f"Warning: {len(warnings) - 20} more parts of {path} were left out; "
                        f"`mosq db import --dry-run {path}` lists all.")
    for line in counts.text(f"taken over from {path}").splitlines():
        report(NOTICE, line)
