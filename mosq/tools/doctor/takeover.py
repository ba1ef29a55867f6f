"""Examine what the next start of mosq does with the sessions and messages that Mosquitto has left: its mosquitto.db, or
the database of its plugin persist-sqlite. mosq/server/handover.py has the rules, and does it."""

import os

from mosq.config.model import Config
from mosq.server import layout
from mosq.server.handover import has_bytes, has_segments, mosquitto_file, not_a_file, sqlite_database
from mosq.server.storage import store_directory
from mosq.tools.db.mark import EXPORTED, NAME, WORKER, former_line, identity, read_mark
from mosq.tools.db.store import SEGMENT

NO_START = "The broker will not start with it."
STOP_FIRST = "Stop Mosquitto first: it writes the file at its end."


def takeover_findings(config: Config) -> list[tuple[bool, str, str]]:
    """Return (whether it needs attention, text, advice) for each file."""
    store = store_directory(config)
    if store is None:
        return []
    file, database = mosquitto_file(config), sqlite_database(config)
    try:
        if has_workers(store):
            odd = _of_workers(config, store) + _later(config, file, None, store)
        elif not has_segments(store):
            odd = [(True, f"{wrong}, so there is nothing to take over from it", "Remove it, or put the file there.")
                   for one in (file, database) if one is not None and (wrong := not_a_file(one))]
            odd += _first([one for one in (file, database) if one is not None and has_bytes(one)], file, store)
        else:
            odd = _later(config, file, database, store)
            if config.cluster_local > 1:
                odd += [(False, f"the next start divides the store {store} among {config.cluster_local} workers",
                         _room(store))]
        former = former_line(store)
        return [*odd, (True, former, "Remove those that you no longer need (rm -r).")] if former else odd
    except OSError as error:
        return [(True, f"{error.filename or store}: {error.strerror}", "Run mosq doctor as a user that may read it.")]


def has_workers(store: str) -> bool:
    """Return whether a folder has the stores of workers. Raises OSError."""
    names = os.listdir(store) if os.path.isdir(store) else []
    return not has_segments(store) and any(
        name == layout.FILE or name.startswith(WORKER) or name in layout.UNFINISHED for name in names)


def _of_workers(config: Config, store: str) -> list[tuple[bool, str, str]]:
    if any(name in layout.UNFINISHED for name in os.listdir(store)):
        return [(False, f"{store}: a change of the number of workers was interrupted; the next start ends it", "")]
    try:
        found = layout.read_layout(store)
        if found is None:
            return [(True, f"{store} has folders of workers, and the file {layout.FILE} is missing",
                     f"{NO_START} Restore the file from a backup: it names the worker of each client id.")]
        layout.check(store, found)
    except PermissionError:
        raise
    except OSError as error:
        text, _, advice = str(error).partition(". ")
        return [(True, text, f"{NO_START} {advice}")]
    of = f"{store} has the stores of {found.workers} workers"
    if found.workers != config.cluster_local:
        what = "joins them" if config.cluster_local == 1 else f"divides them among {config.cluster_local} workers"
        return [(False, f"{of}; the next start {what}", _room(store))]
    if layout.is_restored(store):
        return [(False, f"{of}, from a backup; the next start settles what was on its way between them", _room(store))]
    return [(False, of, "")]


def _room(store: str) -> str:
    total = sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(store) for name in names
                if name.startswith(SEGMENT))
    return f"It needs up to {total / 1e6:,.0f} MB of free space, and 32 MB for each worker."


def _first(paths: list[str], file: str | None, store: str) -> list[tuple[bool, str, str]]:
    found = []
    for path in paths[:1]:
        wrong, text = _content(path)
        if wrong:
            found.append((True, text, f"The broker will not start with it. {wrong}"))
        else:
            kept = f"the file is kept as {path}.kept when mosq writes its own" if path == file else "the file stays"
            found.append((False, f"{path}: the first start takes over {text}; {kept}", STOP_FIRST))
    return found + [
        (True, f"{path} exists too, and is not taken over",
         f"To use it instead, run once before the start: mosq db import {path} {store}") for path in paths[1:]]


def _later(config: Config, file: str | None, database: str | None, store: str) -> list[tuple[bool, str, str]]:
    found = []
    mark = read_mark(store, file) if file is not None else None
    if file is not None and config.mosquitto_db and has_bytes(file):
        if mark is None:
            found.append((True, f"{file} is not from the store {store}, and is not taken over",
                          f"To use it instead, stop mosq and run: mosq db import --force {file} {store}"))
        elif identity(file) not in mark.files:
            wrong, text = _content(file)
            found.append((True, f"{file} was changed after mosq wrote it: {text}",
                          f"The next start uses the store {store}." if wrong
                          else f"The next start takes that over, and sets the store {store} aside."))
    is_written = config.mosquitto_db and mark is not None and mark.how == EXPORTED
    if file is not None and is_written and identity(file) is None:
        found.append((True, f"{file} was removed after mosq wrote it: the next start begins without sessions and "
                            "retained messages",
                      f"The store {store} is set aside then, into its folder removed.TIME. To keep its content, "
                      f"remove the file {os.path.join(store, NAME)} before the start."))
    if database is not None and has_bytes(database) and os.path.getmtime(database) > _last_change(store):
        found.append((True, f"{database} is newer than the store {store}, and is not taken over again",
                      f"To use it instead, stop mosq and run: mosq db import --force {database} {store}"))
    return found


def _last_change(store: str) -> float:
    return max(os.path.getmtime(os.path.join(store, name)) for name in os.listdir(store))


def _content(path: str) -> tuple[str, str]:
    """Return (what to do if the file cannot be taken over, else "", what it contains or why it cannot)."""
    from mosq.tools.db.mosquitto_file import Client, ClientMessage, FormatError, InUseError, Retain, Subscription, Will
    from mosq.tools.db.mosquitto_import import open_file

    counts = dict.fromkeys((Client, Subscription, ClientMessage, Retain, Will), 0)
    try:
        with open_file(path) as file:
            for chunk in file.chunks(with_payload=False):
                if type(chunk) in counts:
                    counts[type(chunk)] += 1
    except FormatError as error:
        if isinstance(error, InUseError):
            return STOP_FIRST, str(error)
        return "Repair it, or move it away to start without its sessions and messages.", str(error)
    wills = f", {counts[Will]:,} wills" if counts[Will] else ""
    return "", (f"{counts[Client]:,} sessions, {counts[Subscription]:,} subscriptions{wills}, "
                   f"{counts[ClientMessage]:,} queued and {counts[Retain]:,} retained messages")
