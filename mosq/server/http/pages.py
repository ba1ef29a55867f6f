"""Composes the answers of the HTTP API: one table of routes. Knows URLs and JSON; neither sockets (connections.py) nor
access rules (gate.py).

  /api/v1/systree  /api/v1/listeners  /api/v1/version   as Mosquitto 2.1
  /api/v1/health   200 or 503: whether the loop answers; for probes, only in mosq
  /metrics  /health  /ready   on listeners with `http_metrics true`: for Prometheus and probes (docs/monitoring.md)
  /dashboard/      the dashboard, where `http_dashboard true` asks for it; control.py passes it, as a `Dashboard`
  anything else    a file of http_dir

To add a page, add a route to Pages.routes(). Every route has the bounds and the access rules of app.py.
"""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from starlette.responses import Response
from starlette.routing import Route

from mosq.config.plugin import has_store
from mosq.server.admin.inspect import store_state
from mosq.server.http.files import file_response
from mosq.stat_names import SYSTREE, SYSTREE_STORE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Protocol

    from starlette.requests import Request

    from mosq.config.model import Config, Listener
    from mosq.server.http.metrics import Metrics, Reading

    Handler = Callable[[Request], Awaitable[Response]]

    class Dashboard(Protocol):
        """mosq/server/http/dashboard, which is loaded only if a listener asks for it."""

        def routes(self, statistics: "Statistics[dict[str, int]]", otherwise: "Handler") -> list[Route]: ...
        def takes_body(self, path: str) -> bool: ...
        def close(self) -> None: ...

HEALTH = "/api/v1/health"
PROBES = frozenset(("/health", "/ready"))       # the same on listeners with `http_metrics true`
STALLED_S = 10.0                # records wait that long, and the store has completed no batch
STATS_WITHIN_S = 5.0
T = TypeVar("T")
TEXT = {"content-type": "text/plain"}
_ANY_ORIGIN = {"access-control-allow-origin": "*"}


def page(status: int, text: str, headers: "Mapping[str, str]" = TEXT) -> Response:
    return Response(text, status, headers)


NOT_FOUND = page(404, "Not found.\n")
INVALID_METHOD = page(405, "Invalid HTTP Method\n", {**TEXT, "allow": "GET, HEAD"})
NOT_AUTHORISED = page(401, "Not authorised\n", {**TEXT, "www-authenticate": 'Basic realm="Mosquitto API"'})
FORBIDDEN = page(403, "This user may not read this page: the access rules of the broker do not allow it.\n")
BAD_REQUEST = page(400, "Bad request.\n")
BODY_TOO_LARGE = page(413, "Request body too large.\n")
HEAD_TOO_LARGE = page(431, "Request header fields too large.\n")
FAILED = page(500, "Internal server error.\n", {**TEXT, "connection": "close"})
UNAVAILABLE = page(503, "The broker does not answer.\n")
BUSY = page(503, "Too many requests at a time.\n", {**TEXT, "retry-after": "1"})


def is_probe(listener: "Listener", path: str) -> bool:
    """Return whether this page of the listener is for probes, which are served before other requests."""
    return path == HEALTH or (listener.http_metrics and path in PROBES)


class Statistics(Generic[T]):
    """Reads the statistics in a thread of its own. Requests that arrive during one reading share the next one, so any
    number of clients costs the data plane one control request at a time."""

    def __init__(self, read: "Callable[[], T]") -> None:
        self._read = read
        self._thread = ThreadPoolExecutor(1, "mosq-http-stats")
        self._reading: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Return statistics that are not older than this call. Raises RuntimeError or TimeoutError if the loop does
        not answer."""
        if self._next is None:
            self._next = asyncio.create_task(self._read_after(self._reading))
        return await asyncio.wait_for(asyncio.shield(self._next), STATS_WITHIN_S)

    async def _read_after(self, earlier: "asyncio.Task[T] | None") -> T:
        if earlier is not None:
            await asyncio.wait([earlier])
        self._reading, self._next = self._next, None
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class Progress:
    """Sees whether the store completes batches while records wait for the disk. A disk that hangs reports no error."""

    def __init__(self) -> None:
        self._commits, self._since_s = -1, 0.0

    def stalls(self, stats: "Mapping[str, int]", now_s: float) -> bool:
        """Return whether records wait, and the number of batches is the same for STALLED_S seconds of calls."""
        if stats["disk_commits"] != self._commits or not stats["disk_waiting_bytes"]:
            self._commits, self._since_s = stats["disk_commits"], now_s
        return now_s - self._since_s >= STALLED_S


class Pages:
    """The pages of one broker."""

    def __init__(self, config: "Config", version: str, stats: "Callable[[], dict[str, int]]",
                 metrics: "Metrics | None" = None, is_starting: "Callable[[], bool]" = lambda: False,
                 dashboard: "Dashboard | None" = None, began_s: float | None = None) -> None:
        """`metrics`: None if no listener has http_metrics. `is_starting`: whether the broker is not complete yet.
        `dashboard`: None if no listener has http_dashboard. `began_s`: start of the broker (monotonic); None: now."""
        self.config, self.version_text, self.stats = config, version, Statistics(stats)
        self.scrapes: Statistics[Reading] | None = None if metrics is None else Statistics(metrics.read)
        self.is_starting, self.is_stopping = is_starting, False
        self.dashboard = dashboard
        self.began_s = time.monotonic() if began_s is None else began_s
        self._progress = Progress()

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/version", self.version),
            Route("/api/v1/listeners", self.listeners),
            Route("/api/v1/systree", self.systree),
            Route(HEALTH, self.health),
            Route("/metrics", self._with_metrics(self.metrics)),
            Route("/health", self._with_metrics(self.health)),
            Route("/ready", self._with_metrics(self.ready)),
            *([] if self.dashboard is None else self.dashboard.routes(self.stats, self.file)),
            Route("/{path:path}", self.file),
        ]

    def takes_body(self, listener: "Listener", path: str) -> bool:
        """Return whether a POST to the path has a page that reads its body."""
        return self.dashboard is not None and listener.http_dashboard and self.dashboard.takes_body(path)

    async def version(self, request: "Request") -> Response:
        return page(200, self.version_text, {**TEXT, **_ANY_ORIGIN})

    async def listeners(self, request: "Request") -> Response:
        return _json({"listeners": [self._listener(one) for one in self.config.listeners]})

    async def systree(self, request: "Request") -> Response:
        try:
            stats = await self.stats.get()
        except (RuntimeError, TimeoutError):
            return UNAVAILABLE
        shown = SYSTREE + SYSTREE_STORE if has_store(self.config) else SYSTREE
        tree = {f"$SYS/broker/{topic}": stats[name] for topic, name in shown}
        return _json({**tree, "$SYS/broker/uptime": self._uptime_s()})

    async def health(self, request: "Request") -> Response:
        try:
            stats = await self.stats.get()
        except (RuntimeError, TimeoutError):
            return UNAVAILABLE
        store = {"store": store_state(stats["disk_trouble"])} if has_store(self.config) else {}
        return _json({"status": "ok", "uptime": self._uptime_s(), **store})

    def _with_metrics(self, page: "Handler") -> "Handler":
        """Return a page that only listeners with http_metrics have; on the others its path is that of a file."""
        async def chosen(request: "Request") -> Response:
            has_page = request.state.connection.listener.config.http_metrics
            return await (page if has_page else self.file)(request)

        return chosen

    async def metrics(self, request: "Request") -> Response:
        assert self.scrapes is not None
        try:
            reading = await self.scrapes.get()
        except (RuntimeError, TimeoutError):
            return UNAVAILABLE
        text, content_type = reading.text(request.headers.get("accept", ""))
        return Response(text, 200, {"content-type": content_type, "cache-control": "no-store"})

    async def ready(self, request: "Request") -> Response:
        """Answer 200 if clients should be sent to this broker, else 503; the body has the reason."""
        try:
            stats = await self.stats.get()
        except (RuntimeError, TimeoutError):
            return UNAVAILABLE
        why = "stopping" if self.is_stopping else "starting" if self.is_starting() else self._store_trouble(stats)
        text = json.dumps({"status": "ready" if why is None else "not ready", "reason": why})
        return Response(text, 200 if why is None else 503, {"content-type": "application/json"})

    def _store_trouble(self, stats: "Mapping[str, int]") -> str | None:
        if self.config.without_store:
            return "store: not open"
        if not has_store(self.config):
            return None
        state = store_state(stats["disk_trouble"])
        if state == "ok" and self._progress.stalls(stats, time.monotonic()):
            state = "stalled"
        return None if state == "ok" else f"store: {state}"

    async def file(self, request: "Request") -> Response:
        path = request.scope["path"]
        if path.lower().startswith("/api/"):
            return NOT_FOUND
        try:
            folder = request.state.connection.listener.config.http_dir
            return await file_response(folder, path, request) or NOT_FOUND
        except TimeoutError:
            return UNAVAILABLE          # the disk hangs
        except OSError:
            return BUSY

    def close(self) -> None:
        self.stats.close()
        if self.scrapes is not None:
            self.scrapes.close()
        if self.dashboard is not None:
            self.dashboard.close()

    def _uptime_s(self) -> int:
        return int(time.monotonic() - self.began_s)

    def _listener(self, listener: "Listener") -> dict[str, object]:
        where: dict[str, object] = {"port": listener.port} if listener.path is None else {"path": listener.path}
        return {**where, "protocol": "httpapi" if listener.protocol == "http_api" else listener.protocol,
                "tls": bool(listener.certfile and listener.keyfile), "mtls": bool(listener.require_certificate),
                "allow_anonymous": self.config.allows_anonymous(listener)}


def _json(value: object) -> Response:
    headers = {"content-type": "application/json", **_ANY_ORIGIN}
    return Response(json.dumps(value, indent="\t"), 200, headers)
