"""The HTTP API's thread: one uvloop for all `protocol http_api` listeners, on which uvicorn's protocol and a Starlette
application run. Knows how they start, stop and report errors; connections.py bounds them, app.py answers.

The control plane's thread waits for this one only until it has begun to serve or has closed its listeners; no work on
a request is done there but a decision about access (gate.py). The data plane never waits for either.
"""

import asyncio
import logging
import threading
import time

# the next two are imported by name otherwise, when the process may no longer have the right to read them
import anyio._backends._asyncio
import anyio.to_thread
import uvicorn.lifespan.off  # noqa: F401
import uvloop
from uvicorn.config import Config
from uvicorn.server import ServerState

from mosq.log_types import ERROR
from mosq.server.http.app import application
from mosq.server.http.connections import HEAD_BYTES_MAX, Connections
from mosq.server.http.files import FILE_THREADS
from mosq.server.http.pages import BAD_REQUEST, BODY_TOO_LARGE, HEAD_TOO_LARGE
from mosq.server.http.refusals import FailedLogins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.applications import Starlette

    from mosq.server.http.gate import Gate
    from mosq.server.http.listeners import HttpListener
    from mosq.server.http.pages import Pages

STOP_WITHIN_S = 1.0
FINISH_WITHIN_S = 10.0          # for answers that are on their way when a reload replaces the server
ERRORS_EVERY_S = 1.0            # at most one line about an error in this time


class HttpApi:
    """The server of all HTTP listeners of a broker."""

    def __init__(self, listeners: "list[HttpListener]") -> None:
        self.listeners = listeners
        self.pages: Pages | None = None
        self.gate: Gate | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()        # set when no listener accepts any more

    def start(self, pages: "Pages", gate: "Gate", report: "Callable[[int, str], None]") -> None:
        """Start the thread and return when it serves."""
        self.pages, self.gate, self._errors = pages, gate, Errors(report)
        self._failed_logins = FailedLogins(report)
        started = threading.Event()
        app = application(pages, gate, self._failed_logins)
        self._thread = threading.Thread(target=self._run, args=(app, started), name="mosq-http", daemon=True)
        self._thread.start()
        started.wait()

    def stop(self) -> None:
        """End all connections and close the sockets, waiting at most STOP_WITHIN_S seconds for the thread."""
        if self.pages is not None:
            self.pages.is_stopping = True
        if self._ended is not None and self._thread is not None:
            self._call(self._ended.set)
            self._thread.join(STOP_WITHIN_S)
        if self.pages is not None:
            self.pages.close()
        self._close_listeners()

    def retire(self) -> None:
        """Leave the addresses to another server. Answers that are on their way may end within FINISH_WITHIN_S seconds;
        then the thread ends by itself. Requests that are not logged in yet get 503. `stop` may follow."""
        if self._ended is not None:
            self._call(self._finish)
            self._closed.wait(STOP_WITHIN_S)
        self._close_listeners()

    def _call(self, function: "Callable[[], object]") -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            self._closed.set()              # the thread has ended

    def _finish(self) -> None:
        assert self._loop is not None
        assert self._ended is not None
        assert self.gate is not None
        self.gate.close()
        self._loop.call_later(FINISH_WITHIN_S, self._ended.set)
        self._connections.finish(self._ended.set)
        self._closed.set()

    def _close_listeners(self) -> None:
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            listener.close()

    def _run(self, app: "Starlette", started: threading.Event) -> None:
        from mosq.log.destinations import block_signals

        block_signals()
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(app, started))
        except Exception as error:      # the broker continues without the HTTP API
            self._errors.report(ERROR, f"Error: The HTTP API has ended: {error!r}.")
        finally:
            started.set()
            self._closed.set()
            if self.pages is not None:
                self.pages.close()

    async def _serve(self, app: "Starlette", started: threading.Event) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(lambda loop, context: self._errors.add(context.get("exception")))
        self._errors.listen()
        anyio.to_thread.current_default_thread_limiter().total_tokens = FILE_THREADS
        state = ServerState()
        self._connections = connections = Connections(_config(app), state, BAD_REQUEST, HEAD_TOO_LARGE, BODY_TOO_LARGE)
        for listener in self.listeners:
            connections.serve(listener)
        started.set()
        await self._ended.wait()
        connections.close()
        self._failed_logins.close()
        for task in state.tasks:
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)


def _config(app: "Starlette") -> Config:
    """Return uvicorn's configuration, with each default set that depends on the environment or trusts a header."""
    config = Config(app, http="h11", ws="none", lifespan="off", interface="asgi3", log_config=None, access_log=False,
                    proxy_headers=False, forwarded_allow_ips="", workers=1, server_header=False, date_header=False,
                    h11_max_incomplete_event_size=HEAD_BYTES_MAX)
    config.load()
    return config


class Errors(logging.Handler):
    """Reports exceptions of pages and of the libraries to the broker's log, at most one in ERRORS_EVERY_S. Requests
    that uvicorn only refuses are no errors: they would let a client fill the log."""

    def __init__(self, report: "Callable[[int, str], None]") -> None:
        super().__init__(logging.ERROR)
        self.report = report
        self._reported_s = -ERRORS_EVERY_S

    def listen(self) -> None:
        """Take the place of an earlier server's handler."""
        for name in ("uvicorn", "asyncio"):
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [self], False
            logger.setLevel(logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        """Report the record's exception."""
        if record.exc_info:
            self.add(record.exc_info[1])

    def add(self, error: BaseException | None) -> None:
        """Report an exception. None is a notice of a library without one; a stop cancels the requests."""
        if error is None or isinstance(error, asyncio.CancelledError):
            return
        now_s = time.monotonic()
        if now_s >= self._reported_s + ERRORS_EVERY_S:
            self._reported_s = now_s
            self.report(ERROR, f"Error: The HTTP API cannot answer: {error!r}.")
