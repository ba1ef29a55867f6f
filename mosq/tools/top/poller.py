"""A thread that asks the broker, so that the terminal never waits for it. Between two readings it does what the user
wants done: inspect or kick a client. After an error it connects again, each time after a longer pause.
"""

import queue
import threading
import time

from mosq.tools.top.broker import Broker, BrokerError, RefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.tools.top.reading import Reading

    Job = Callable[[Broker], None]

PAUSES_S = (1.0, 2.0, 5.0)      # before the next attempts to connect


class Poller:
    """Calls from its thread `take` with each reading, `fail` with the text of each error of the connection, and
    `refuse` with the reason why the broker does not do a job."""

    def __init__(self, broker: Broker, interval_s: float, take: "Callable[[Reading], None]",
                 fail: "Callable[[str], None]", refuse: "Callable[[str], None]") -> None:
        self.interval_s, self.is_paused = interval_s, False
        self._broker, self._take, self._fail, self._refuse = broker, take, fail, refuse
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="mosq-top", daemon=True)
        self._has_ended = False

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; wait for it no longer than for a request that the broker does not answer."""
        self._has_ended = True
        self._jobs.put(None)
        self._thread.join(1.0)

    def do(self, job: "Job") -> None:
        """Run a job before the next reading. It may raise BrokerError and RefusedError."""
        self._jobs.put(job)

    def wake(self) -> None:
        """Read now: the interval or the pause has changed."""
        self._jobs.put(None)

    def _run(self) -> None:
        failures = 0
        while not self._has_ended:
            pause_s = self.interval_s
            if not self.is_paused:
                try:
                    self._take(self._broker.read(self.interval_s))
                    failures = 0
                except (BrokerError, RefusedError) as error:
                    pause_s = PAUSES_S[min(failures, len(PAUSES_S) - 1)]
                    failures += 1
                    self._fail(f"{error} Next attempt in {pause_s:g} s.")
            self._wait(pause_s)

    def _wait(self, pause_s: float) -> None:
        until_s = time.monotonic() + pause_s
        while not self._has_ended:
            try:
                left_s = None if self.is_paused else max(0.0, until_s - time.monotonic())
                job = self._jobs.get(timeout=left_s)
            except queue.Empty:
                return
            if job is None:
                return
            try:
                job(self._broker)
            except RefusedError as error:
                self._refuse(str(error))
            except BrokerError as error:
                self._fail(str(error))
