"""A store whose folder is missing or cannot be written. Determines whether the broker may run without it, and logs that
nothing is kept.

`persistence true` alone promises no more than Mosquitto does with such a folder: it runs, and cannot save. A durability
that the configuration asks for, a stream, and persist-sqlite promise more: without the store the broker does not start.
"""

import os

from mosq.config.plugin import PERSIST_SQLITE, sqlite_keeps
from mosq.log_types import ERROR, WARNING
from mosq.server.storage import store_directory, store_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.config.model import Config

    Report = Callable[[int, str], None]

LOOK_EVERY_S = 10.0
REPORT_EVERY_S = 1800.0         # Mosquitto tries to save every 30 minutes
PROMISES = ("durability", "durability_topic", "stream", "stream_events")


def unusable(config: "Config") -> str | None:
    """Return which folder cannot be used for the store, and why; None if it can be used or there is no store."""
    directory = store_directory(config)
    return None if directory is None else problem_of(directory)


def problem_of(directory: str) -> str | None:
    """Return why a store in this folder cannot be opened or made; None if it can."""
    folder = directory if os.path.isdir(directory) else os.path.dirname(directory) or "."
    try:
        os.stat(folder)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    if not os.path.isdir(folder):
        return f"{folder}: Not a directory"
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        return f"{folder}: Permission denied"
    return None


def promise(config: "Config") -> str | None:
    """Return the option because of which the broker must not run without its store; None if there is none."""
    for name in PROMISES:
        if name in config.origins:
            return name
    for listener in config.listeners:
        if "listener_durability" in listener.origins:
            return "listener_durability"
    return PERSIST_SQLITE if sqlite_keeps(config) else None


def must_stop(config: "Config") -> str | None:
    """Return the error with which the broker does not start; None if it starts."""
    why, option = unusable(config), promise(config)
    if why is None or option is None:
        return None
    return (f"The store cannot be opened ({why}), and '{option}' promises that messages are kept. Expected a "
            "persistence_location that is there and belongs to the user that the broker runs as.")


def unkept_line(why: str) -> str:
    """Return the line that reports that the broker runs without its store."""
    return (f"Nothing is kept over a restart, although persistence is true: the store cannot be opened ({why}). Make "
            "the folder, owned by the user that the broker runs as, and restart mosq.")


class Unkept:
    """Looks again and again whether the folder can be used. A running broker cannot take a store into use."""

    def __init__(self, config: "Config", report: "Report", now_s: float) -> None:
        self._why, self._report = config.without_store, report
        self._directory = store_place(config)
        self._next_s, self._report_s = now_s + LOOK_EVERY_S, now_s + REPORT_EVERY_S
        self._is_usable = False
        report(ERROR, f"Error: {unkept_line(config.without_store)}")

    def due_in_s(self, now_s: float) -> float:
        return max(0.0, self._next_s - now_s)

    def look(self, now_s: float) -> None:
        """Look, if it is time, and report what has changed, or every REPORT_EVERY_S what has not."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_EVERY_S
        why = problem_of(self._directory)
        if why is None and not self._is_usable:
            self._report(WARNING, "Warning: The folder of the store can be used now. Restart mosq, and it keeps "
                                  "sessions and messages; until then nothing is kept.")
        elif now_s >= self._report_s:
            self._report_s = now_s + REPORT_EVERY_S
            self._report(ERROR, f"Error: {unkept_line(why or self._why)}")
        self._is_usable = why is None
