"""One worker, as its parent sees it: its process, its channel, and when it is started again. Knows no signal handler
and no listener."""

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.server.workers.channel import Channel, Message

PAUSE_FIRST_S, PAUSE_MAX_S = 0.1, 30.0      # from the end of a worker to its next start
STEADY_S = 60.0                 # a worker that has lived for so long starts again after the first pause


class Slot:
    """The place of a worker, from 0, and the process that has it now."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.pid = 0                    # 0: no process
        self.status: int | None = None  # of the last process that has ended; below 0: the signal
        self.channel: Channel | None = None
        self.ready = False              # whether it serves clients
        self.failure: Message | None = None     # why the last process could not start
        self.bridged = False            # whether the first attempts of its bridges have ended
        self.held_s: float | None = None    # until when its clients wait for bridges; None: they do not
        self.seen_s = 0.0               # time of its last sign of life
        self.killed_for = ""            # why the parent has killed the process
        self.due_s: float | None = None     # when the next process starts; None: there is one, or none shall start
        self._started_s = 0.0
        self._failures = 0              # ends since it was last steady

    @property
    def name(self) -> str:
        """The name in log lines."""
        return f"Worker {self.place + 1}"

    @property
    def is_here(self) -> bool:
        """Return whether the parent runs this worker: each one, unless other parents share them."""
        return True

    @property
    def is_starting(self) -> bool:
        """Return whether the worker starts, or was not started yet."""
        return not self.ready and self.due_s is None

    def began(self, pid: int, channel: "Channel", now_s: float) -> None:
        """Note a new process."""
        self.pid, self.channel, self.ready, self.due_s, self.failure = pid, channel, False, None, None
        self.bridged, self.held_s, self.killed_for = False, None, ""
        self._started_s = self.seen_s = now_s

    def reap(self) -> str | None:
        """Return how the process has ended; None if it runs. A process whose channel is closed is killed."""
        if self.channel is not None and self.channel.closed and self.pid:
            self.kill(signal.SIGKILL)
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG) if self.pid else (0, 0)
        except ChildProcessError:
            pid, status = self.pid, 0
        if pid == 0:
            return None
        self.status = os.waitstatus_to_exitcode(status)
        how = f"was ended by signal {-self.status}" if self.status < 0 else f"ended with status {self.status}"
        if self.killed_for:
            how = f"{self.killed_for}, and was killed"
        text = f"{self.name} (process {self.pid}) {how}"
        if self.channel is not None:
            self._read_last(self.channel)
            self.channel.close()
        self.pid, self.channel, self.ready = 0, None, False
        return text

    def is_stopped(self) -> bool:
        """Return whether a signal or a debugger has stopped the process."""
        try:
            with open(f"/proc/{self.pid}/stat", encoding="utf-8", errors="replace") as file:
                return file.read().rpartition(")")[2].split()[0] in "Tt"
        except (OSError, IndexError):
            return False

    def _read_last(self, channel: "Channel") -> None:
        """Take what an ended process has sent before it ended."""
        for message, fds in channel.receive():
            if message["is"] == "failed":
                self.failure = message
            for fd in fds:
                os.close(fd)

    def wait_s(self, now_s: float) -> float:
        """Return the pause before the next process starts, which grows. It begins now."""
        self._failures = 0 if now_s - self._started_s >= STEADY_S else self._failures
        pause_s = min(PAUSE_MAX_S, PAUSE_FIRST_S * 2.0 ** self._failures)
        self._failures += 1
        return pause_s

    @property
    def ends(self) -> int:
        """Return how many processes have ended since one was steady."""
        return self._failures

    def kill(self, number: int) -> None:
        """Send a signal to the process."""
        if self.pid:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass                    # it has ended, and was not reaped yet
