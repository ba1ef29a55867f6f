"""Takes what native plugins ask of the broker, from any of their threads: log lines, messages, ends of connections,
answers to delayed logins. One host serves the process, because the names that plugins call belong to the process.

    cext/shim/actions.c -> descriptor becomes readable, or a call has ended -> take -> the Sink in force
"""

import ctypes
import os
import select
import threading
import time

from mosq.auth.native import calls
from mosq.log_types import DEBUG, ERROR, INFORMATION, NOTICE, WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Sink(Protocol):
        """The receiver of the requests of plugins."""

        def log(self, type_bit: int, text: str) -> None: ...
        def publish(self, topic: str, payload: bytes, qos: int, retain: bool, properties: bytes | None,
                    client_id: str | None) -> None: ...
        def kick_client(self, client_id: str | None) -> None: ...
        def kick_user(self, username: str | None) -> None: ...
        def complete(self, connection: int, login: int, result: int, address: str, user: str | None) -> None: ...
        def note(self, address: str, user: str, good: bool) -> None: ...

LEVELS = {1: INFORMATION, 2: NOTICE, 4: WARNING, 8: ERROR, 16: DEBUG}
PORTION, PAUSE_S = 256, 0.001    # of requests that the thread takes at once; before the next ones
TAKE_S = 0.1                     # for requests at the end of a call, whose client waits


class Host:
    """The shim of this process, and the thread that takes what plugins ask for while no call ends. It runs while there
    are plugins."""

    def __init__(self) -> None:
        self.shim = calls.open_shim()
        self.sink: Sink | None = None
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._plugins = 0               # that are being loaded, are loaded, or hang
        self._thread: threading.Thread | None = None
        self._ending = False

    def begin(self, sink: "Sink") -> None:
        """Count one plugin more, whose requests `sink` gets. The thread starts with the first plugin; the process is in
        the background by now."""
        with self._counting:
            self.sink = sink
            if self._thread is None:
                self._ending = False
                thread = threading.Thread(target=self._run, name="mosq-plugins", daemon=True)
                thread.start()
                self._thread = thread
            self._plugins += 1

    def end(self) -> None:
        """Count one plugin less. With the last one the thread ends; wait for that, and drop what threads of plugins ask
        for afterwards: the next broker must not get it."""
        with self._counting:
            self._plugins -= 1
            if self._plugins or self._thread is None:
                return
            self._ending = True
            os.write(self.shim.mosq_shim_wake_fd(), (1).to_bytes(8, "little"))
            self._thread.join()
            self._thread = self.sink = None
            self.take()

    def take(self, most: int | None = None) -> bool:
        """Do what plugins have asked for so far, in its order, at most `most` of it; return whether more waits. Any
        thread may call this. Later requests are left, and those that take longer than TAKE_S: a plugin that asks
        without an end would hold the caller."""
        with self._lock:
            waiting, give_up_s = int(self.shim.mosq_shim_actions_waiting()), time.monotonic() + TAKE_S
            for _ in range(waiting if most is None else min(waiting, most)):
                action = self.shim.mosq_shim_action_take() if time.monotonic() < give_up_s else None
                if not action:
                    break
                try:
                    self._do(action.contents)
                finally:
                    self.shim.mosq_shim_action_free(action)
            lost = self.shim.mosq_shim_actions_lost()
            if lost and self.sink is not None:
                self.sink.log(WARNING, f"Warning: {lost} requests of native plugins are lost: too many wait.")
        return bool(self.shim.mosq_shim_actions_waiting())

    def _do(self, action: calls.Action) -> None:
        sink = self.sink
        if sink is None:
            return
        text = None if action.text is None else action.text.decode("utf-8", "replace")
        other = None if action.client_id is None else action.client_id.decode("utf-8", "replace")
        try:
            if action.kind == calls.DO_LOG:
                sink.log(LEVELS.get(action.level, INFORMATION), text or "")
            elif action.kind == calls.DO_PUBLISH:
                sink.publish(text or "", action.given_data(), action.qos, bool(action.retain),
                             action.given_properties(), other)
            elif action.kind == calls.DO_KICK_ID:
                sink.kick_client(text)
            elif action.kind == calls.DO_KICK_USER:
                sink.kick_user(text)
            elif action.kind == calls.DO_COMPLETE:
                sink.complete(action.connection, action.login, action.level, other or "", text)
            elif action.kind == calls.DO_OUTCOME:
                sink.note(other or "", text or "", bool(action.level))
        except Exception as error:
            sink.log(WARNING, f"Warning: A request of a native plugin failed: {type(error).__name__}.")

    def _run(self) -> None:
        wake_fd = self.shim.mosq_shim_wake_fd()
        poll = select.poll()
        poll.register(wake_fd, select.POLLIN)
        while True:
            while self.take(PORTION) and not self._ending:
                time.sleep(PAUSE_S)         # the threads of plugins, whose callers wait, have their turn
            if self._ending:
                return
            poll.poll()
            try:
                os.read(wake_fd, 8)
            except BlockingIOError:
                pass


_host: Host | None = None


def host() -> Host:
    """Return the host of this process, made at the first call. Raises OSError if the shim cannot be loaded."""
    global _host
    if _host is None:
        _host = Host()
        _host.shim.mosq_shim_wake_fd()
    return _host


def error_number(pointer: "Any") -> int:
    """Return the value of a C int."""
    return int(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_int)).contents.value)
