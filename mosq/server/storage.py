"""The store of a broker: where it lies, and what is said when it is opened. Knows the options of persistence; not what
is in the files (cext/store, cext/session/record)."""

import os

from mosq.config.options import LOG_TYPES
from mosq.config.plugin import has_store
from mosq.server.settings import stream_specs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.config.model import Config
    from mosq.engine import Engine

WARNING, INFORMATION = LOG_TYPES["warning"], LOG_TYPES["information"]
SUFFIX = ".store"       # beside Mosquitto's own file, which may still be there


def store_directory(config: "Config") -> str | None:
    """None: nothing is kept."""
    if not has_store(config):
        return None
    return os.path.join(config.persistence_location or "", config.persistence_file + SUFFIX)


def open_store(engine: "Engine", config: "Config", say: "Callable[[int, str], None]") -> None:
    """The engine becomes what its store holds. Raises OSError: where, what, and what to do."""
    directory = store_directory(config)
    if directory is None:
        return
    before = directory.removesuffix(SUFFIX)
    if os.path.isfile(before) and not os.path.isdir(directory):
        say(WARNING, f"Warning: {before} is a database of Mosquitto's, which is not read. To take it over, stop "
                     f"mosq and run: mosq db import {_config_of(config)}{before} {directory}")
    found = engine.persist(directory, config.durability, config.durability_interval, streams=stream_specs(config))
    say(INFORMATION, f"Store {directory}: {found['sessions']} sessions, {found['subscriptions']} subscriptions, "
                     f"{found['messages']} queued and {found['retained']} retained messages "
                     f"(durability {config.durability}).")
    for line in losses(directory, found):
        say(WARNING, f"Warning: {line}")
    for stream in found["streams"]:
        shards = "1 shard" if stream["shards"] == 1 else f"{stream['shards']} shards"
        say(INFORMATION, f"Stream {stream['name']}: {shards} in {os.path.join(directory, 'streams', stream['name'])}.")
        for line in stream_losses(stream):
            say(WARNING, f"Warning: {line}")


def _config_of(config: "Config") -> str:
    """Told where it tells whose sessions are bridges'."""
    return f"-c {config.file} " if config.bridges and config.file else ""


def stream_losses(stream: "dict[str, Any]") -> list[str]:
    """What is not in a stream any more, in words."""
    name, lines = stream["name"], []
    if stream["lost"]:
        ranges = ", ".join(f"{lo} to {hi - 1}{f' of shard {shard}' if stream['shards'] > 1 else ''} ({why})"
                           for shard, lo, hi, why in stream["lost"])
        lines.append(f"the stream {name} has lost {stream['lost_records']} records: {ranges}. Their numbers are not "
                     "given again.")
    if stream["mark_lost"]:
        lines.append(f"the marks of the stream {name} were gone: what its segments hold counts.")
    if stream["unreadable"]:
        lines.append(f"{stream['unreadable']} damaged files of the stream {name} were left alone.")
    return lines


def losses(directory: str, found: "dict[str, Any]") -> list[str]:
    """What could not be read, in words."""
    lines = []
    if found["n_lost"]:
        ranges = ", ".join(f"{lo} to {hi if hi < 2**64 - 1 else 'unknown'}" for lo, hi in found["lost"])
        lines.append(f"{found['n_lost']} damaged places in {directory}: what was recorded at lsn {ranges} is lost "
                     f"({found['lost_bytes']} bytes). `mosq db check {directory}` tells more.")
    if found["odd"]:
        lines.append(f"{found['odd']} records in {directory} say what cannot be and were passed over.")
    if found["unreadable"] or found["foreign"]:
        lines.append(f"{found['unreadable']} damaged and {found['foreign']} foreign files in {directory} were left "
                     "alone.")
    return lines
