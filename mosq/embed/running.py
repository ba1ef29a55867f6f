"""A running embedded broker: its engine and two threads. One runs the loop (without the GIL); the other passes on log
lines and, if there are password files or plugins, auth requests to `mosq.auth`, which has its own threads for slow work
and is loaded only in that case.

  start: open -> loop thread -> mailbox open        stop: stop the loop -> join both threads -> close access
"""

import os
import select
import signal
import threading
import time

from mosq.config.plugin import has_store
from mosq.embed import log
from mosq.embed.errors import BrokerStopped
from mosq.engine import new_engine
from mosq.server.admin.topics import topics_of
from mosq.server.serving import hand_out, tick
from mosq.server.settings import engine_listeners, engine_securities, engine_settings, needs_access

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mosq.config.model import Config
    from mosq.engine import Engine, Security
    from mosq.records import Answer
    from mosq.server.access import Access
    from mosq.server.bridge.bridges import Bridges

# these signals come from the thread itself: blocking them would only hide the cause
_OWN_SIGNALS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP,
                signal.SIGPROF}
TICK_S = 1.0                    # period of time-outs, for example of plugins


def _wake(event_fd: int) -> None:
    os.write(event_fd, (1).to_bytes(8, "little"))


class Running:
    """The running parts. Holds no reference to the `Broker` that started them, so that an unused broker can be
    collected."""

    def __init__(self, config: "Config") -> None:
        """Start. Raises ConfigError and ValueError for settings, OSError for a socket."""
        self.engine: Engine | None = None
        self._mask = log.wanted(config)
        self._access: Access | None = None
        self._bridges: Bridges | None = None    # None if no bridge is configured
        securities = self._securities(config)
        try:
            self._topics = topics_of(config, self.running_engine, self._report, self._wake, self._bridge_states)
            if self._access is not None:
                self._access.answer_on(self._topics, self.running_engine, lambda: self._access)
            self.engine = self._new_engine(config, securities)
            if has_store(config):
                from mosq.server.storage import open_store

                open_store(self.engine, config, self._report)
            self.engine.open()
            if self._access is not None:
                self._access.open(self._answer)
        except BaseException:
            self._close_access()
            raise
        self.ports = self.engine.ports()
        self.failure: BaseException | None = None
        self._started = threading.Event()
        self._ended = False
        self._stopping = threading.Lock()
        self._loop = threading.Thread(target=self._run, args=(self.engine,), name="mosq-loop", daemon=True)
        self._log = threading.Thread(target=self._drain, args=(self.engine,), name="mosq-log", daemon=True)
        self._loop.start()
        self._started.wait()
        if self._bridges is not None:
            self._bridges.start(config)
        self._log.start()

    def stop(self) -> None:
        """Stop; returns when no thread runs any more. Any thread may call this, any number of times."""
        with self._stopping:
            if self.engine is None:
                return
            if self._bridges is not None:
                self._bridges.close_all()       # look-ups must not wake the threads any more
            self.engine.stop()
            for thread in (self._loop, self._log):
                if thread is not threading.current_thread():
                    thread.join()
            self._close_access()
            self.engine = None          # its descriptors close with the last reference

    def running_engine(self) -> "Engine":
        """Return the engine. Raises BrokerStopped."""
        engine = self.engine
        if engine is None:
            raise BrokerStopped("the broker is not running")
        return engine

    def adopt(self, fd: int, client_id: str) -> None:
        """Hand a socket over to the loop, which trusts it. Raises BrokerStopped, and RuntimeError if the loop ends."""
        self.running_engine().adopt(fd)

    def has_other_workers(self) -> bool:
        """Return whether the broker goes on if a process of it ends."""
        return False

    def call(self, method: str, *arguments: str) -> "Any":
        """Call a method of the engine. Raises BrokerStopped, and RuntimeError if the loop ends."""
        return getattr(self.running_engine(), method)(*arguments)

    def _securities(self, config: "Config") -> "list[Security]":
        if not needs_access(config):
            return engine_securities(config)
        from mosq.server.access import Access

        self._access = Access(config, self._report, None)       # there is no engine yet
        return self._access.securities()

    def _new_engine(self, config: "Config", securities: "list[Security]") -> "Engine":
        settings = {**engine_settings(config, self._mask), "control_topics": self._topics.names()}
        listeners = engine_listeners(config)
        if not config.bridges:
            return new_engine(settings, listeners, securities)
        from mosq.server.bridge.bridges import Bridges, specs_of

        engine = new_engine(settings, listeners, securities, specs_of(config))
        event_fd = engine.event_fd()
        self._bridges = Bridges(engine, self._report, lambda: _wake(event_fd))
        return engine

    def _wake(self) -> None:
        engine = self.engine                # keep a reference, so that its descriptor is not reused during the call
        if engine is not None:
            _wake(engine.event_fd())

    def _bridge_states(self) -> "list[dict[str, Any]]":
        if self._bridges is None:
            return []
        from mosq.server.admin.bridges import states

        return states(self._bridges)

    def _close_access(self) -> None:
        if self._access is not None:
            self._access.close()

    def _report(self, type_bit: int, text: str) -> None:
        if type_bit & self._mask:
            log.report(type_bit, text)

    def _answer(self, answers: "list[Answer]") -> None:
        engine = self.engine
        if engine is not None:
            engine.answer(answers)

    def _run(self, engine: "Engine") -> None:
        # signals belong to the program: Python would not notice them at once in this thread
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OWN_SIGNALS)
        try:
            engine.run(self._started.set)
        except BaseException as failure:        # logged; later calls raise BrokerStopped
            self.failure = failure
        self._started.set()
        self._ended = True
        os.write(engine.event_fd(), (1).to_bytes(8, "little"))

    def _wait_ms(self, tick_s: float) -> float | None:
        waits = [] if self._access is None else [max(0.0, tick_s - time.monotonic())]
        due_s = None if self._bridges is None else self._bridges.due_in_s()
        if due_s is not None:
            waits.append(due_s)
        return 1000 * min(waits) if waits else None

    def _drain(self, engine: "Engine") -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OWN_SIGNALS)
        poll = select.poll()
        poll.register(engine.event_fd(), select.POLLIN)
        tick_s = time.monotonic()
        while not self._ended:
            poll.poll(self._wait_ms(tick_s))
            log.write(engine.drain())
            hand_out(engine.requests(), engine, self._report, self._bridges, self._topics, self._access)
            if self._access is not None and time.monotonic() >= tick_s:
                tick(self._access, self._report)
                tick_s = time.monotonic() + TICK_S
        log.write(engine.drain())
        if self.failure is not None:
            log.logger.error("The data plane ended by itself: %r", self.failure)
