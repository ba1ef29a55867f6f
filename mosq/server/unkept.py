"""A store whose folder is missing or cannot be written. Determines whether the broker may run without it, logs that
nothing is kept, and takes the store into use when the folder can be used. What an earlier start has left there, and the
broker can read, is loaded from a copy, which ends with the broker.

`persistence true` alone promises no more than Mosquitto does with such a folder: it runs, and cannot save. A durability
that the configuration asks for, a stream, and a plugin that keeps the state promise more: without the store the broker
does not start.
"""

import os

from mosq.config.plugin import PERSIST_SQLITE, sqlite_keeps
from mosq.log_types import ERROR, NOTICE, WARNING
from mosq.server.handover import SEGMENT, has_bytes, has_segments, mosquitto_file, take_over
from mosq.server.storage import attach_store, store_directory, store_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.config.model import Config
    from mosq.engine import Engine

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
    if sqlite_keeps(config):
        return PERSIST_SQLITE
    return "plugin" if config.kept_by_plugin and not config.persistence else None


def must_stop(config: "Config") -> str | None:
    """Return the error with which the broker does not start; None if it starts."""
    why, option = unusable(config), promise(config)
    if why is None or option is None:
        return None
    return (f"The store cannot be opened ({why}), and '{option}' promises that messages are kept. Expected a "
            "persistence_location that is there and belongs to the user that the broker runs as.")


def unkept_line(config: "Config", why: str) -> str:
    """Return the line that reports that the broker runs without its store, and names a store or file that is ignored
    because of that."""
    try:
        left = left_behind(config)
    except OSError:
        left = ""
    used = f"The sessions and messages in {left} are used, and no change of them is kept. " if left else ""
    return (f"Nothing is kept over a restart, although persistence is true: the store cannot be opened ({why}). "
            f"{used}{_advice(why)}: " + ("a restart uses it then." if left else "mosq looks every 10 seconds."))


def _advice(why: str) -> str:
    if why.endswith("Permission denied"):
        return "Give the folder to the user that the broker runs as (chown)"
    if why.endswith("Not a directory"):
        return "Name a folder of the broker's user in persistence_location"
    return "Make the folder, owned by the user that the broker runs as"


def left_behind(config: "Config") -> str:
    """Return the path of a store or a file of Mosquitto with content; "" if there is none. Raises OSError."""
    directory, path = store_place(config), mosquitto_file(config)
    if has_segments(directory):
        return directory
    return path if path is not None and has_bytes(path) else ""


class Unkept:
    """Looks again and again whether the folder can be used, and then takes a new store into use, with all that the
    broker has. What another start has left there is not changed: then a restart is needed."""

    def __init__(self, config: "Config", report: "Report", now_s: float) -> None:
        self._why, self._report, self._config = config.without_store, report, config
        self._directory = store_place(config)
        self._next_s, self._report_s = now_s + LOOK_EVERY_S, now_s + REPORT_EVERY_S
        self._said = ""
        self._loaded = self._copy = ""      # what an earlier start has left; the folder of its copy
        import shutil  # noqa: F401 - for load, while root's rights may be needed to read it
        import tempfile  # noqa: F401
        report(ERROR, f"Error: {unkept_line(config, config.without_store)}")

    def load(self, engine: "Engine") -> None:
        """Load what an earlier start has left. If it cannot be read, report that; then the broker has none of it.
        Called with the rights of the broker's user. Raises OSError if the copy cannot be opened as a store."""
        import shutil
        import tempfile

        left = self._directory
        try:
            left = left_behind(self._config)
            if not left:
                return
            self._copy = tempfile.mkdtemp(prefix="mosq-copy-")
            store = os.path.join(self._copy, "store")
            if left == self._directory:
                os.mkdir(store)
                for name in os.listdir(left):
                    if name.startswith(SEGMENT):
                        shutil.copyfile(os.path.join(left, name), os.path.join(store, name))
            else:
                take_over(self._config, store, left, self._report)
        except (OSError, ValueError) as error:
            self.close()
            self._report(ERROR, f"Error: {left} cannot be loaded: {error}. The broker has none of its sessions and "
                                "messages.")
            return
        self._loaded = left
        found = engine.persist(store, "async", self._config.durability_interval)
        self._report(NOTICE, f"Loaded a copy of {left}: {found['sessions']} sessions, {found['subscriptions']} "
                             f"subscriptions, {found['messages']} queued and {found['retained']} retained messages.")

    def close(self) -> None:
        """Remove the copy."""
        if self._copy:
            import shutil

            shutil.rmtree(self._copy, ignore_errors=True)
            self._copy = ""

    def due_in_s(self, now_s: float) -> float:
        return max(0.0, self._next_s - now_s)

    def look(self, now_s: float, engine: "Engine", at_once: bool = False) -> bool:
        """Look, if it is time or a signal asks for it. Return whether the store is in use now. Report what has changed,
        or every REPORT_EVERY_S what has not."""
        if now_s < self._next_s and not at_once:
            return False
        self._next_s = now_s + LOOK_EVERY_S
        why = problem_of(self._directory)
        try:
            left = (self._loaded or left_behind(self._config)) if why is None else ""
            if why is None and not left:
                attach_store(engine, self._config, self._report)
                return True
        except OSError as error:
            why = str(error)
        if left and left != self._said:
            self._said = left
            instead = "." if self._loaded else ". To keep those instead, move it away."
            self._report(WARNING, f"Warning: The folder of the store can be used now, and {left} is from an earlier "
                                  "start. Restart mosq to use it; changes since this start are lost then"
                                  f"{instead}")
        elif now_s >= self._report_s:
            self._report_s = now_s + REPORT_EVERY_S
            self._report(ERROR, f"Error: {unkept_line(self._config, why or left or self._why)}")
        return False
