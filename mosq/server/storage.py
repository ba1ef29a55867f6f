"""Opens the store of a broker and logs what it contains. Knows the options of persistence, not the contents of the
files (cext/store, cext/session/record)."""

import os

from mosq.config.plugin import has_store, sqlite_file
from mosq.log_types import INFORMATION, NOTICE, WARNING
from mosq.server import handover, layout
from mosq.server.settings import stream_specs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.config.model import Config
    from mosq.engine import Engine
    from mosq.server.feeding import Feeder

IN_REDIS = " in Redis"  # after the name of a store without a folder
SUFFIX = ".store"       # beside Mosquitto's own file, which may still exist
STREAMS = "streams"
STREAMS_MAX = 33        # STREAMS_MAX of cext/broker/persist/streams.pxd, and the stream of events
NAME_MAX = 64           # STREAM_NAME_MAX there


def store_directory(config: "Config") -> str | None:
    """Return the store's folder; None if the configuration persists nothing on this machine."""
    return store_place(config) if has_store(config) and config.cluster is None else None


def store_place(config: "Config") -> str:
    """Return the folder that a store of this configuration has, or would have. A worker has a folder in it."""
    place = store_root(config)
    return os.path.join(place, f"worker.{config.worker}") if config.worker else place


def store_root(config: "Config") -> str:
    """Return the folder of the store of the whole broker."""
    return (sqlite_file(config) or os.path.join(config.persistence_location or "", config.persistence_file)) + SUFFIX


def may_take_over(config: "Config") -> bool:
    """Return whether `open_store` may take over a file of Mosquitto."""
    directory = store_directory(config)
    return directory is not None and handover.may_take_over(config, directory)


def may_divide(config: "Config") -> bool:
    """Return whether `open_store` or `key_of` may change the number of stores. Raises OSError."""
    return has_store(config) and not config.worker and layout.changes(config, store_root(config))


def key_of(config: "Config", report: "Callable[[int, str], None]") -> bytes:
    """Return the key that names the worker of a client id, and make the stores those of the configured number of
    workers. Without a store it is a new one. Raises OSError and ValueError like `open_store`."""
    if not has_store(config):
        return os.urandom(layout.KEY_BYTES)
    try:
        return layout.arrange(config, store_root(config), report)
    except PermissionError as error:
        root = store_root(config)
        raise OSError(f"{error.filename or root}: {error.strerror}. The folder of the store, and all that is in it, "
                      f"must belong to the user that the broker runs as: chown -R USER {root}") from None


def open_store(engine: "Engine", config: "Config", report: "Callable[[int, str], None]",
               feeder: "Feeder | None" = None) -> None:
    """Load the store's contents into the engine, or what a persistence plugin has restored (deciding.py). Raises
    OSError with the path, the problem and what to do, and ValueError for a file of Mosquitto that cannot be taken
    over."""
    directory = store_directory(config)
    if directory is None:
        return
    if not config.worker:
        layout.arrange(config, directory, report)
    handover.settle(config, directory, report)
    if feeder is not None:
        feeder.settle(directory, handover.bridge_ids(config))
    streams = stream_specs(config)
    if streams:
        streams = _placed(config, streams)
    found = engine.persist(directory, config.durability, config.durability_interval, streams=streams)
    report_store(directory, config, found, report)
    report_streams(found, streams, report)


def report_store(directory: str, config: "Config", found: "dict[str, Any]",
                 report: "Callable[[int, str], None]") -> None:
    """Report what a store contains, and what it has lost."""
    report(INFORMATION, f"Store {directory}: {found['sessions']} sessions, {found['subscriptions']} subscriptions, "
                        f"{found['messages']} queued and {found['retained']} retained messages "
                        f"(durability {config.durability}).")
    for line in losses(directory, found):
        report(WARNING, f"Warning: {line}")


def report_streams(found: "dict[str, Any]", streams: "list[dict[str, Any]]",
                   report: "Callable[[int, str], None]") -> None:
    """Report the streams that were opened, and what they have lost."""
    for stream, spec in zip(found["streams"], streams, strict=True):
        shards = "1 shard" if stream["shards"] == 1 else f"{stream['shards']} shards"
        report(INFORMATION, f"Stream {stream['name']}: {shards} in {spec['folder']}.")
        for line in stream_losses(stream):
            report(WARNING, f"Warning: {line}")


def attach_store(engine: "Engine", config: "Config", report: "Callable[[int, str], None]") -> None:
    """Take a new store into use while the broker runs, with all that it has. Raises OSError; then there is none."""
    directory = store_place(config)
    try:
        engine.attach(directory, config.durability, config.durability_interval)
    except OSError:
        _remove_segments(directory)
        raise
    report(NOTICE, "The folder of the store can be used now: all sessions and retained messages are kept in "
                   f"{directory} (durability {config.durability}).")


def _remove_segments(directory: str) -> None:
    """Remove what an attempt has begun. There was no store before it."""
    try:
        for name in os.listdir(directory):
            if name.startswith(handover.SEGMENT):
                os.unlink(os.path.join(directory, name))
    except OSError:
        pass                # the next look reports it


def stream_losses(stream: "dict[str, Any]") -> list[str]:
    """Describe the records that a stream has lost, one line each."""
    name, lines = stream["name"], []
    if stream["lost"]:
        ranges = ", ".join(f"{lo} to {hi - 1}{f' of shard {shard}' if stream['shards'] > 1 else ''} ({why})"
                           for shard, lo, hi, why in stream["lost"])
        lines.append(f"the stream {name} has lost {stream['lost_records']} records: {ranges}. The numbers will not "
                     "be used again.")
    if stream["mark_lost"]:
        lines.append(f"the marks of the stream {name} were missing; they were rebuilt from its segments.")
    if stream["unreadable"]:
        lines.append(f"{stream['unreadable']} damaged files of the stream {name} were left alone.")
    return lines


def _check_of(directory: str) -> str:
    return "`mosq cluster check`" if directory.endswith(IN_REDIS) else f"`mosq db check {directory}`"


def losses(directory: str, found: "dict[str, Any]") -> list[str]:
    """Describe what could not be read from the store, one line each."""
    lines = []
    if found["n_lost"]:
        ranges = ", ".join(f"{lo} to {hi if hi < 2**64 - 1 else 'unknown'}" for lo, hi in found["lost"])
        lines.append(f"{found['n_lost']} damaged places in {directory}: the records at lsn {ranges} are lost "
                     f"({found['lost_bytes']} bytes). {_check_of(directory)} shows more.")
    if found["odd"]:
        lines.append(f"{found['odd']} records in {directory} are contradictory and were skipped.")
    if found["denied"]:
        lines.append(f"{found['denied']} sessions came through listeners that do not exist any more. They may not "
                     "read or write until their clients connect again.")
    if found["unreadable"] or found["foreign"]:
        lines.append(f"{found['unreadable']} damaged and {found['foreign']} foreign files in {directory} were left "
                     "alone.")
    return lines


# ---- the folders of streams (mosq/journal/parts.py)

def _placed(config: "Config", specs: "list[dict[str, Any]]") -> "list[dict[str, Any]]":
    """Return streams with their folders and with the id that all parts of a stream have, and the parts that are left of
    another number of workers, which the first worker opens for retention. Makes the folders. Raises OSError.

    A broker that is one process has a journal for each stream in the store's folder; each worker has a part of its own
    beside the stores, so parts stay where they are when the number of workers changes."""
    left: list[dict[str, Any]] = []
    for spec in specs:
        path = os.path.join(store_root(config), STREAMS, spec["name"])
        if config.worker:
            os.makedirs(path, 0o700, exist_ok=True)
        there = _parts(path)
        spec["folder"] = _part_folder(path, config.worker)
        ids = {part: _stream_id(folder) for part, folder in there.items()}
        spec["id"] = next((found for found in ids.values() if found), None)
        without = [part for part, found in ids.items() if found and part not in _own_parts(config)]
        here = [{"name": f"{spec['name']}.{part}", "filters": [], "folder": there[part], "id": spec["id"], "left": True,
                 "retain_age_us": spec["retain_age_us"], "retain_bytes": spec["retain_bytes"]}
                for part in without if len(f"{spec['name']}.{part}") <= NAME_MAX]
        here = here[:STREAMS_MAX - len(specs) - len(left)]
        left += here
        if not spec.get("events"):
            opened = {one["folder"] for one in here}
            spec["parts"] = [(part, _part_folder(path, part), _place_of(config, part, there.get(part) in opened))
                             for part in sorted({*without, *_own_parts(config)})]
    return [*specs, *left] if config.worker <= 1 else specs


def _place_of(config: "Config", part: int, opened: bool) -> int | None:
    """Return the place of the worker that has a part open, from 0; None: no process has, or the broker is alone."""
    if not config.worker or (part not in _own_parts(config) and not opened):
        return None
    return part - 1 if part in _own_parts(config) else 0


def _own_parts(config: "Config") -> range:
    """Return the numbers of the parts that the broker writes now."""
    return range(1, config.cluster_local + 1) if config.worker else range(1)


def _part_folder(path: str, part: int) -> str:
    return os.path.join(path, f"worker.{part}") if part else path


def _parts(path: str) -> dict[int, str]:
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        return {}
    numbers = sorted(int(name[7:]) for name in names if name.startswith("worker.") and name[7:].isdecimal())
    return {part: _part_folder(path, part) for part in (0, *numbers)}


def _stream_id(folder: str) -> str | None:
    """Return the id of the stream in a folder; None if it has no mark."""
    from mosq import _core

    try:
        return str(_core.marks(folder)["stream_id"])
    except OSError:
        return None
