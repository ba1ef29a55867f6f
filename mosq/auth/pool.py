"""A bounded pool of threads of low priority. Knows work as callables only.

The threads have their own nice value (Linux has one per thread), so they do not take the core from the data plane's
loop, which never waits for them. Their work releases the GIL for most of its time, or is short. A thread whose call
never returns is lost to this pool only.
"""

import os
import threading
from queue import Empty, SimpleQueue
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Work = Callable[[], None]
    Queued = tuple[Work, Work | None]

NICE = 10


class Pool:
    """`put` never waits; it returns whether there was room and a thread."""

    def __init__(self, name: str, threads: int, waiting_max: int, when_idle: "Work", failed: "Callable[[str], None]"
                 ) -> None:
        """A thread without further work calls `when_idle` before it waits. `failed` is called with the name of an
        exception that work raised, which is a defect of that work."""
        self._waiting_max, self._when_idle, self._failed = waiting_max, when_idle, failed
        self._waiting: SimpleQueue[Queued | None] = SimpleQueue()
        self._closing = False
        self._putting = threading.Lock()
        self._began: dict[int, float] = {}      # running calls: thread -> time of their begin
        self._threads = [threading.Thread(target=self._run, name=f"mosq-{name}-{i}", daemon=True)
                         for i in range(threads)]
        self._started = False
        self._starting = threading.Lock()

    def _start(self) -> bool:
        """Start the threads with the first work, because threads do not survive the fork into the background. Return
        whether one runs."""
        with self._starting:
            if not self._started:
                try:
                    for thread in self._threads:
                        if thread.ident is None:
                            thread.start()
                    self._started = True
                except RuntimeError:            # the system refuses a thread; the next work tries again
                    pass
            return self._threads[0].ident is not None

    def put(self, work: "Work", instead: "Work | None" = None, always: bool = False) -> bool:
        """Queue work; return False if there is no room or no thread. `instead` is called if the pool closes before the
        work has begun. `always`: there is room; the caller bounds such work."""
        if not self._started and not self._start():
            return False
        with self._putting:
            if self._closing or (self._waiting.qsize() >= self._waiting_max and not always):
                return False
            self._waiting.put((work, instead))
        return True

    def waiting(self) -> int:
        """Return the number of queued calls."""
        return self._waiting.qsize()

    def running_for(self, now: float) -> float:
        """Return the seconds since the oldest running call began; 0 if none runs."""
        return max((now - began for began in tuple(self._began.values())), default=0.0)

    def close(self, within_s: float, last: "Work | None" = None) -> bool:
        """Discard the queue, run `last`, and wait `within_s` seconds for running calls. Return whether all threads
        ended."""
        with self._putting:
            self._closing = True
        try:
            while True:
                _, instead = self._waiting.get_nowait() or (None, None)
                if instead is not None:
                    instead()
        except Empty:
            pass
        if last is not None:
            self._start()
            self._waiting.put((last, None))
        begun = [thread for thread in self._threads if thread.ident is not None]
        for _ in begun:
            self._waiting.put(None)
        give_up = monotonic() + within_s
        for thread in begun:
            thread.join(max(0.0, give_up - monotonic()))
        return not any(thread.is_alive() for thread in begun)

    def _run(self) -> None:
        me = threading.get_native_id()
        try:
            os.setpriority(os.PRIO_PROCESS, me, NICE)
        except OSError:                         # already lower, or not allowed: the loop may be slower
            pass
        while True:
            try:
                queued = self._waiting.get_nowait()
            except Empty:
                self._when_idle()
                queued = self._waiting.get()
            if queued is None:
                return
            work = queued[0]
            self._began[me] = monotonic()
            try:
                work()
            except Exception as error:
                self._failed(type(error).__name__)
            finally:
                del self._began[me]
            del queued, work                    # a waiting thread holds no reference to a password
