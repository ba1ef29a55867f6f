"""A bounded pool of threads of low priority. Knows work as callables; not what they do.

The threads have a nice value of their own (Linux gives every thread one), so that the loop of the data plane, which
never waits for them, is not starved of its core. What they do releases the GIL for most of its time, or is short. A
thread that never comes back from a call is lost to this pool, and to nobody else.
"""

import os
import threading
from queue import Empty, SimpleQueue
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Work = Callable[[], None]

NICE = 10


class Pool:
    """`put` never waits: it says whether there was room, and a thread."""

    def __init__(self, name: str, threads: int, waiting_max: int, when_idle: "Work", failed: "Callable[[str], None]"
                 ) -> None:
        """`when_idle` is called by a thread that finds nothing more to do, before it waits; `failed` with the name of
        an exception that work let out, which is a mistake in it."""
        self._waiting_max, self._when_idle, self._failed = waiting_max, when_idle, failed
        self._waiting: SimpleQueue[Work | None] = SimpleQueue()
        self._closing = False
        self._began: dict[int, float] = {}      # of the calls that run: thread -> since when
        self._threads = [threading.Thread(target=self._run, name=f"mosq-{name}-{i}", daemon=True)
                         for i in range(threads)]
        self._started = False
        self._starting = threading.Lock()

    def _start(self) -> bool:
        """With the first work, not before: threads do not survive the fork into the background. Whether one runs."""
        with self._starting:
            if not self._started:
                try:
                    for thread in self._threads:
                        if thread.ident is None:
                            thread.start()
                    self._started = True
                except RuntimeError:            # the system has none to give; the next work tries again
                    pass
            return self._threads[0].ident is not None

    def put(self, work: "Work") -> bool:
        if self._closing or self._waiting.qsize() >= self._waiting_max:
            return False
        if not self._started and not self._start():
            return False
        self._waiting.put(work)
        return True

    def waiting(self) -> int:
        return self._waiting.qsize()

    def running_for(self, now: float) -> float:
        """Seconds since the oldest call that still runs began; 0: none runs."""
        return max((now - began for began in tuple(self._began.values())), default=0.0)

    def close(self, within_s: float, last: "Work | None" = None) -> bool:
        """What waits is dropped, `last` is done; what runs may end in time. Returns whether all has ended."""
        self._closing = True
        try:
            while True:
                self._waiting.get_nowait()
        except Empty:
            pass
        if last is not None:
            self._start()
            self._waiting.put(last)
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
        except OSError:                         # already lower, or not allowed: slower for the loop, not wrong
            pass
        while True:
            try:
                work = self._waiting.get_nowait()
            except Empty:
                self._when_idle()
                work = self._waiting.get()
            if work is None:
                return
            self._began[me] = monotonic()
            try:
                work()
            except Exception as error:
                self._failed(type(error).__name__)
            finally:
                del self._began[me]
            work = None                         # a thread that waits holds no password
