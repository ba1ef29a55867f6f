"""Where the journals of streams are (mosq/journal/parts.py): a broker that is one process has one for each stream, in
the store's folder; each worker has a part of its own beside the stores, so parts stay where they are when the number of
workers changes. Parts that no worker has any more are opened by the first one, for retention."""

import os

from mosq.server.storage import store_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mosq.config.model import Config

STREAMS = "streams"
STREAMS_MAX = 33                # STREAMS_MAX of cext/broker/persist/streams.pxd, and the stream of events
NAME_MAX = 64                   # STREAM_NAME_MAX there


def placed(config: "Config", specs: "list[dict[str, Any]]") -> "list[dict[str, Any]]":
    """Return streams with their folders and with the id that all parts of a stream have, and the parts that are left of
    another number of workers. Makes the folders. Raises OSError."""
    left: list[dict[str, Any]] = []
    for spec in specs:
        path = os.path.join(store_root(config), STREAMS, spec["name"])
        if config.worker:
            os.makedirs(path, 0o700, exist_ok=True)
        there = _parts(path)
        spec["folder"] = _folder(path, config.worker)
        spec["id"] = next((found for found in map(_id, there.values()) if found), None)
        if config.worker <= 1:
            left += [{"name": f"{spec['name']}.{part}", "filters": [], "folder": folder, "id": spec["id"],
                      "retain_age_us": spec["retain_age_us"], "retain_bytes": spec["retain_bytes"]}
                     for part, folder in there.items() if part not in _own(config) and _id(folder)]
    left = [spec for spec in left if len(spec["name"]) <= NAME_MAX]
    return [*specs, *left[:STREAMS_MAX - len(specs)]]


def _own(config: "Config") -> range:
    """Return the numbers of the parts that the broker writes now."""
    return range(1, config.cluster_local + 1) if config.worker else range(1)


def _folder(path: str, part: int) -> str:
    return os.path.join(path, f"worker.{part}") if part else path


def _parts(path: str) -> dict[int, str]:
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        return {}
    numbers = sorted(int(name[7:]) for name in names if name.startswith("worker.") and name[7:].isdecimal())
    return {part: _folder(path, part) for part in (0, *numbers)}


def _id(folder: str) -> str | None:
    """Return the id of the stream in a folder; None if it has no mark."""
    from mosq import _core

    try:
        return str(_core.marks(folder)["stream_id"])
    except OSError:
        return None
