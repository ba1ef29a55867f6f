"""The thread of the data plane's loop, as the control plane sees it.

Imported before the broker listens. It uses `_thread` because `threading` imports as much as the rest of a start.
"""

import _thread

from mosq.server.signals import block

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.engine import Engine
    from mosq.server.signals import Signals


class DataPlane:
    """The thread of the loop. The main thread handles all signals; they must not interrupt the loop. The process does
    not wait for this thread when it ends."""

    def __init__(self, engine: "Engine", taken: "Signals") -> None:
        self.engine, self.signals = engine, taken
        self.ended = False              # set before the wake-up; is_alive() stays true for a moment after it
        self.failure: BaseException | None = None
        self._alive = _thread.allocate_lock()           # held from the start to the end of the thread
        self._opening = _thread.allocate_lock()         # held until the loop is ready or has ended

    def start(self) -> None:
        """Start the thread. Raises RuntimeError if the system refuses."""
        self._alive.acquire()
        self._opening.acquire()
        _thread.start_new_thread(self._run, ())

    def wait_ready(self) -> None:
        """Wait until the loop accepts control requests, or has failed."""
        with self._opening:
            pass

    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._alive.locked()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread, but not longer than `timeout_s` seconds."""
        if self._alive.acquire(timeout=timeout_s):
            self._alive.release()

    def _run(self) -> None:
        block()
        ready = False

        def started() -> None:
            nonlocal ready
            ready = True
            self._opening.release()

        try:
            self.engine.run(started)
        except BaseException as failure:        # the main thread logs it and ends the process
            self.failure = failure
        self.ended = True
        if not ready:
            started()
        self.signals.wake()
        self._alive.release()
