"""Writes Mosquitto's file (mosquitto.db) beside the store, so that Mosquitto could start from it: at the end, on
SIGUSR1, and by autosave_interval and autosave_on_changes. The store is what the broker itself starts from.

While the broker runs, another process reads the store's files and writes the new file; the loop does not wait, and the
process has a lower priority. It is a new Python. If only root can read the Python installation it is a fork, which has
all modules, but makes the loop copy the pages that it changes. At the end this process writes it, in at most
mosquitto_db_seconds. A save that could not be finished leaves the old file.

With workers, their parent writes the file, of all stores. They report to it what they have changed.

Imported before the broker listens, so it imports almost nothing.
"""

import os
import sys
import threading
import time

from mosq.config.plugin import has_store
from mosq.log_types import ERROR, INFORMATION, NOTICE, WARNING
from mosq.server.handover import has_stores, mosquitto_file
from mosq.server.storage import store_directory
from mosq.tools.db.mark import TAKEN_OVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.config.model import Config
    from mosq.engine import Engine

CHECK_S = 0.1                   # period in which changes are counted, with autosave_on_changes
COUNT_S = 10.0                  # longest period in which workers report changes otherwise
SHARE = 20                      # a save that took 1 s is followed by 20 s without an automatic one
OUTPUT_MAX = 4096


class Saver:
    """The saves of one broker. `changes` returns the messages and the batches that were written since the start, of
    which each has at least one change; `writing` makes the process that writes a file."""

    def __init__(self, config: "Config", changes: "Callable[[], tuple[int, int]]",
                 report: "Callable[[int, str], None]", writing: "Callable[[list[str]], Writing]",
                 key: bytes = b"") -> None:
        self.config, self._changes, self._report, self._writing, self._key = config, changes, report, writing, key
        self._running: Writing | None = None
        self._again = False         # another save was requested while one was running
        self._saved_s = time.monotonic()    # beginning of the last save
        self._rest_s = 0.0          # time that no automatic save begins before
        self._saved = (0, 0)        # the changes of before it
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
        if max(self._unsaved()) >= (self.config.autosave_interval if self.config.autosave_on_changes else 1):
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
        elif path is None or not has_stores(store_directory(self.config) or ""):
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
        if path is None or store is None or not has_stores(store):      # a store without a segment has no content
            return
        self._report(INFORMATION, f"Saving in-memory database to {path}.")
        from mosq.tools.db.mosquitto_save import TooLongError, save
        from mosq.tools.db.store import StoreError, reason

        within_s = self.config.mosquitto_db_seconds
        try:
            _, *kept = save(store, path, ports_of(self.config), within_s, self._key)
            self._report_kept(path, *kept)
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

    def _unsaved(self) -> tuple[int, int]:
        messages, commits = self._changes()
        return messages - self._saved[0], commits - self._saved[1]

    def _begin(self) -> None:
        path, store = self._path(), store_directory(self.config)
        if path is None or store is None:
            return
        self._saved = self._changes()
        self._saved_s, self._again = time.monotonic(), False
        self._report(INFORMATION, f"Saving in-memory database to {path}.")
        ports = [f"{number}:{port}" for number, port in ports_of(self.config).items()]
        self._running = self._writing([os.path.abspath(store), path, *ports])

    def _ended(self) -> None:
        running, path = self._running, self._path() or "the file"
        assert running is not None
        self._running = None
        self._rest_s = time.monotonic() + SHARE * (time.monotonic() - self._saved_s)
        if running.status:
            self._failed(path, running.output or f"the process that writes it ended with status {running.status}")
        else:
            how, _, kept = running.output.partition(" ")
            self._report_kept(path, kept, how)
        if self._again:
            self._begin()

    def _report_kept(self, path: str, kept: str, how: str) -> None:
        if kept and how == TAKEN_OVER:
            self._report(NOTICE, f"The file {path} that was taken over is now {kept}.")
        elif kept:
            self._report(WARNING, f"Warning: {path} was not written by this broker. Its old content is now in {kept}.")

    def _failed(self, path: str, why: str) -> None:
        self._report(ERROR, f"Error: {path} could not be written, and has its old content: {why}. mosq does not need "
                            "it.")


class Writing:
    """A process that writes the file, and what it prints: why it failed, or the name of a file that it kept."""

    def __init__(self) -> None:
        self.status, self.output, self.ended = 0, "", False
        self._pid = 0

    def stop(self) -> None:
        """End the process, and wait for its end."""

    def _collect(self, output: bytes) -> None:
        """Wait for the process, which has closed its output."""
        pid, self._pid = self._pid, 0
        self.status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.output = output[:OUTPUT_MAX].decode("utf-8", "replace")


class Waiting(Writing):
    """A thread waits for the process, and calls `wake` at its end."""

    def __init__(self, job: list[str], wake: "Callable[[], None]") -> None:
        super().__init__()
        self._job, self._wake = job, wake
        self._lock = threading.Lock()   # held while the process may be ended by its id
        self._thread = threading.Thread(target=self._run, name="mosq-saving", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._write()
        except OSError as error:
            self.status, self.output = 1, str(error)
        self.ended = True               # before the wake-up; the thread is alive for a moment after it
        self._wake()

    def _write(self) -> None:
        read_fd, write_fd = os.pipe()
        try:
            with self._lock:
                self._pid = self._spawn(write_fd) if _can_read_python() else fork_writing(self._job, write_fd)
        finally:
            os.close(write_fd)
        with open(read_fd, "rb") as file:
            output = file.read(OUTPUT_MAX)
        os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            self._collect(output)

    def _spawn(self, output_fd: int) -> int:
        return os.posix_spawn(
            sys.executable, [sys.executable, "-m", "mosq.tools.db.mosquitto_save", *self._job],
            {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            file_actions=[(os.POSIX_SPAWN_DUP2, output_fd, 2)], setsigmask=[], setsigdef=_signals())

    def stop(self) -> None:
        from signal import SIGKILL

        with self._lock:
            if self._pid:
                os.kill(self._pid, SIGKILL)
        self._thread.join()


class Polled(Writing):
    """A fork of a process without threads, which polls `fd` and calls `look` when it is readable. `begin` is called in
    the new process before anything else."""

    def __init__(self, job: list[str], key: bytes, begin: "Callable[[], None]") -> None:
        super().__init__()
        self._output = b""
        self.fd = -1
        try:
            self.fd, write_fd = os.pipe()
            try:
                self._pid = fork_writing(job, write_fd, key, begin)
            finally:
                os.close(write_fd)
        except OSError as error:
            self.status, self.output, self.ended = 1, str(error), True
            if self.fd >= 0:
                os.close(self.fd)

    def look(self) -> None:
        """Read what the process has printed, and notice its end."""
        data = os.read(self.fd, OUTPUT_MAX)
        self._output += data
        if not data:
            self.ended = True
            os.close(self.fd)
            self._collect(self._output)

    def stop(self) -> None:
        from signal import SIGKILL

        os.kill(self._pid, SIGKILL)
        while not self.ended:
            self.look()


def fork_writing(job: list[str], output_fd: int, key: bytes = b"", begin: "Callable[[], None] | None" = None) -> int:
    """Do the job in a fork, which prints to `output_fd`; return its process id. Raises OSError."""
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
        if begin is not None:
            begin()
        status = main(job, key)
    finally:
        os._exit(status)


class Counting:
    """Stand for the Saver in a worker: report the changes to the parent, which writes the file."""

    def __init__(self, config: "Config", changes: "Callable[[], tuple[int, int]]",
                 tell: "Callable[[int, int], None]") -> None:
        self.config, self._changes, self._tell = config, changes, tell
        self._told = (0, 0)
        self._due_s = 0.0

    def due_in_s(self) -> float | None:
        """Return the seconds until `serve` has something to do; None: nothing."""
        config = self.config
        if not config.mosquitto_db or not has_store(config) or config.autosave_interval <= 0:
            return None
        return self._due_s - time.monotonic()

    def serve(self) -> None:
        """Report the changes since the last report."""
        due_s = self.due_in_s()
        if due_s is None or due_s > 0:
            return
        period_s = CHECK_S if self.config.autosave_on_changes else min(COUNT_S, self.config.autosave_interval)
        self._due_s = time.monotonic() + period_s
        now = self._changes()
        if now != self._told:
            self._tell(now[0] - self._told[0], now[1] - self._told[1])
            self._told = now

    def saves(self) -> bool:
        return False

    def save(self) -> None:
        """Do nothing: the parent serves SIGUSR1."""

    def finish(self) -> None:
        """Do nothing: the parent writes the file when all workers have ended."""


def changes_of(engine: "Engine") -> tuple[int, int]:
    """Return the messages and the batches that were written since the start."""
    try:
        stats = engine.stats()
    except RuntimeError:            # the loop has not begun yet
        return 0, 0
    return stats["disk_messages_written"] + stats["disk_messages_elided"], stats["disk_commits"]


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
