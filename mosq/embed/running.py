"""A broker that runs: its engine and two threads, one in the loop (without the GIL), one that hands its log lines over.

    start: open -> loop thread -> mailbox open        stop: ask the loop -> join both -> nothing is left
"""

import os
import select
import signal
import threading

from mosq.embed import log
from mosq.embed.errors import BrokerStopped
from mosq.engine import new_engine
from mosq.settings import engine_listeners, engine_securities, engine_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.config.model import Config
    from mosq.engine import Engine

# raised by the thread's own doing: blocking them would only hide where
_OWN_SIGNALS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP,
                signal.SIGPROF}


class Running:
    """Knows nothing of whoever started it, so that a forgotten broker can be collected."""

    def __init__(self, config: "Config") -> None:
        """Raises ValueError for settings, OSError for a socket."""
        self.engine: Engine | None = new_engine(engine_settings(config, log.wanted(config)), engine_listeners(config),
                                                engine_securities(config))
        self.engine.open()
        self.ports = self.engine.ports()
        self.failure: BaseException | None = None
        self._started = threading.Event()
        self._ended = False
        self._stopping = threading.Lock()
        self._loop = threading.Thread(target=self._run, args=(self.engine,), name="mosq-loop", daemon=True)
        self._log = threading.Thread(target=self._drain, args=(self.engine,), name="mosq-log", daemon=True)
        self._loop.start()
        self._started.wait()
        self._log.start()

    def stop(self) -> None:
        """Returns when nothing of it runs any more; any thread, any number of times."""
        with self._stopping:
            if self.engine is None:
                return
            self.engine.stop()
            for thread in (self._loop, self._log):
                if thread is not threading.current_thread():
                    thread.join()
            self.engine = None          # its descriptors go with the last who asks it something

    def asked(self) -> "Engine":
        """The engine, for a question."""
        engine = self.engine
        if engine is None:
            raise BrokerStopped("the broker is not running")
        return engine

    def _run(self, engine: "Engine") -> None:
        # signals are the program's: they must not end up in this thread, where Python would not see them at once
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OWN_SIGNALS)
        try:
            engine.run(self._started.set)
        except BaseException as failure:        # told to the log; whoever asks next hears that it does not run
            self.failure = failure
        self._started.set()
        self._ended = True
        os.write(engine.event_fd(), (1).to_bytes(8, "little"))

    def _drain(self, engine: "Engine") -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OWN_SIGNALS)
        poll = select.poll()
        poll.register(engine.event_fd(), select.POLLIN)
        while not self._ended:
            poll.poll()
            log.write(engine.drain())
        log.write(engine.drain())
        if self.failure is not None:
            log.logger.error("The data plane ended by itself: %r", self.failure)
