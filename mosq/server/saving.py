"""Writes Mosquitto's file (mosquitto.db) beside the store, so that Mosquitto could start from it: at the end, on
SIGUSR1, and by autosave_interval and autosave_on_changes. The store is what the broker itself starts from.

While the broker runs, another process reads the store's files and writes the new file; the loop does not wait, and the
process has a lower priority. It is a new Python. If only root can read the Python installation it is a fork, which has
all modules, but makes the loop copy the pages that it changes. At the end this process writes it, in at most
mosquitto_db_seconds. A save that could not be finished leaves the old file.

Imported before the broker listens, so it imports almost nothing.
"""

import os
import sys
import threading
import time

from mosq.config.plugin import has_store
from mosq.log_types import ERROR, INFORMATION, NOTICE, WARNING
from mosq.server.handover import has_segments, mosquitto_file
from mosq.server.storage import store_directory
from mosq.tools.db.mark import TAKEN_OVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.config.model import Config
    from mosq.engine import Engine

CHECK_S = 0.1                   # period in which changes are counted, with autosave_on_changes
SHARE = 20                      # a save that took 1 s is followed by 20 s without an automatic one
OUTPUT_MAX = 4096


class Saver:
    """The saves of one broker. `wake` makes the main thread call `serve`; any thread may call it."""

    def __init__(self, config: "Config", engine: "Engine", report: "Callable[[int, str], None]",
                 wake: "Callable[[], None]") -> None:
        self.config, self._engine, self._report, self._wake = config, engine, report, wake
        self._running: Writing | None = None
        self._again = False         # another save was requested while one was running
        self._saved_s = time.monotonic()    # beginning of the last save
        self._rest_s = 0.0          # time that no automatic save begins before
        self._saved_changes = self._saved_commits = 0
        self._check_s = 0.0

    def due_in_s(self) -> float | None:
        """Return the seconds until `serve` has something to do without a wake-up; None: nothing."""
        config = self.config
        if self._path() is None or config.autosave_interval <= 0:
            return None
        now_s = time.monotonic()
        if config.autosave_on_changes:
            return max(self._check_s, self._rest_s) - now_s
        return max(self._saved_s + config.autosave_interval, self._rest_s) - now_s

    def serve(self) -> None:
        """Report the end of a save, and begin one that is due."""
        if self._running is not None and self._running.ended:
            self._ended()
        due_s = self.due_in_s()
        if due_s is None or due_s > 0 or self._running is not None:
            return
        self._check_s = time.monotonic() + CHECK_S
        messages, commits = self._changes()
        if max(messages, commits) >= (self.config.autosave_interval if self.config.autosave_on_changes else 1):
            self._begin()
        elif not self.config.autosave_on_changes:
            self._saved_s = time.monotonic()    # nothing has changed

    def saves(self) -> bool:
        """Return whether the configuration in force has a file to write."""
        return self._path() is not None

    def save(self) -> None:
        """Begin a save, for SIGUSR1."""
        path = self._path()
        if self.config.without_store:
            from mosq.server.unkept import unkept_line

            self._report(ERROR, f"Error: {unkept_line(self.config, self.config.without_store)}")
        elif path is None or not has_segments(store_directory(self.config) or ""):
            self._report(NOTICE, f"Nothing to save: {self._why_not()}.")
        elif self._running is not None:
            self._again = True
        else:
            self._begin()

    def finish(self) -> None:
        """Write the file after the data plane has ended."""
        if self._running is not None:
            self._running.stop()
        path, store = self._path(), store_directory(self.config)
        if path is None or store is None or not has_segments(store):    # a store without a segment has no content
            return
        self._report(INFORMATION, f"Saving in-memory database to {path}.")
        from mosq.tools.db.mosquitto_save import TooLongError, save
        from mosq.tools.db.store import StoreError, reason

        within_s = self.config.mosquitto_db_seconds
        try:
            _, *kept = save(store, path, ports_of(self.config), within_s)
            self._saved(path, *kept)
        except TooLongError:
            self._report(WARNING, f"Warning: {path} was not written within {within_s} s (mosquitto_db_seconds), and "
                                  f"has its old content. mosq needs only {store}. For Mosquitto, run: "
                                  f"mosq db export --force --mosquitto {path} {store}")
        except (OSError, StoreError) as error:
            self._failed(path, reason(error))

    def _path(self) -> str | None:
        return mosquitto_file(self.config) if self.config.mosquitto_db and has_store(self.config) else None

    def _why_not(self) -> str:
        if not has_store(self.config):
            return "persistence is off"
        if self._path() is not None:
            return "no session and no retained message has been stored"
        return "the store already holds all that was acknowledged, and this configuration writes no mosquitto.db"

    def _changes(self) -> tuple[int, int]:
        """Return the messages and the batches written since the last save; each batch has at least one change."""
        try:
            stats = self._engine.stats()
        except RuntimeError:            # the loop has not begun yet
            return 0, 0
        return (stats["disk_messages_written"] + stats["disk_messages_elided"] - self._saved_changes,
                stats["disk_commits"] - self._saved_commits)

    def _begin(self) -> None:
        path, store = self._path(), store_directory(self.config)
        if path is None or store is None:
            return
        messages, commits = self._changes()
        self._saved_changes += messages
        self._saved_commits += commits
        self._saved_s, self._again = time.monotonic(), False
        self._report(INFORMATION, f"Saving in-memory database to {path}.")
        ports = [f"{number}:{port}" for number, port in ports_of(self.config).items()]
        self._running = Writing([os.path.abspath(store), path, *ports], self._wake)
        self._running.start()

    def _ended(self) -> None:
        running, path = self._running, self._path() or "the file"
        assert running is not None
        self._running = None
        self._rest_s = time.monotonic() + SHARE * (time.monotonic() - self._saved_s)
        if running.status:
            self._failed(path, running.output or f"the process that writes it ended with status {running.status}")
        else:
            how, _, kept = running.output.partition(" ")
            self._saved(path, kept, how)
        if self._again:
            self._begin()

    def _saved(self, path: str, kept: str, how: str) -> None:
        if kept and how == TAKEN_OVER:
            self._report(NOTICE, f"The file {path} that was taken over is now {kept}.")
        elif kept:
            self._report(WARNING, f"Warning: {path} was not written by this broker. Its old content is now in {kept}.")

    def _failed(self, path: str, why: str) -> None:
        self._report(ERROR, f"Error: {path} could not be written, and has its old content: {why}. mosq does not need "
                            "it.")


class Writing(threading.Thread):
    """A process that writes the file, and the thread that waits for it."""

    def __init__(self, job: list[str], wake: "Callable[[], None]") -> None:
        super().__init__(name="mosq-saving", daemon=True)
        self.status, self.output = 0, ""
        self.ended = False              # set before the wake-up; is_alive() stays true for a moment after it
        self._job, self._wake = job, wake
        self._pid = 0
        self._lock = threading.Lock()   # held while the process may be ended by its id

    def run(self) -> None:
        try:
            self._run()
        except OSError as error:
            self.status, self.output = 1, str(error)
        self.ended = True
        self._wake()

    def _run(self) -> None:
        read_fd, write_fd = os.pipe()
        try:
            with self._lock:
                self._pid = self._spawn(write_fd) if _can_read_python() else self._fork(write_fd)
        finally:
            os.close(write_fd)
        with open(read_fd, "rb") as output:
            self.output = output.read(OUTPUT_MAX).decode("utf-8", "replace")
        os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            pid, self._pid = self._pid, 0
            self.status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def _spawn(self, output_fd: int) -> int:
        return os.posix_spawn(
            sys.executable, [sys.executable, "-m", "mosq.tools.db.mosquitto_save", *self._job],
            {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            file_actions=[(os.POSIX_SPAWN_DUP2, output_fd, 2)], setsigmask=[], setsigdef=_signals())

    def _fork(self, output_fd: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            import signal

            from mosq.tools.db.mosquitto_save import main

            signal.set_wakeup_fd(-1)
            for number in _signals():
                signal.signal(number, signal.SIG_DFL)
            os.dup2(output_fd, 2)
            status = main(self._job)
        finally:
            os._exit(status)

    def stop(self) -> None:
        """End the process, and wait for its end."""
        from signal import SIGKILL

        with self._lock:
            if self._pid:
                os.kill(self._pid, SIGKILL)
        self.join()


def ports_of(config: "Config") -> dict[int, int]:
    """Return the port of a listener for each number of a security; Mosquitto's file names listeners by their ports."""
    from mosq.config.security import securities_of

    return {number: source.listeners[0].port for number, source in enumerate(securities_of(config))
            if source.listeners and source.listeners[0].port}


def _can_read_python() -> bool:
    return os.access(os.__file__, os.R_OK) and os.access(__file__, os.R_OK)


def _signals() -> "list[int]":
    from mosq.server import signals

    return list(signals.TAKEN)
