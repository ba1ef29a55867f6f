"""Composes the answers of the HTTP API: one table of routes. Knows URLs and JSON; neither sockets (connections.py) nor
access rules (gate.py).

  /api/v1/systree  /api/v1/listeners  /api/v1/version   as Mosquitto 2.1
  /api/v1/health   200 or 503: whether the loop answers; for probes, only in mosq
  anything else    a file of http_dir

To add a page, add a route to Pages.routes(). Every route has the bounds and the access rules of app.py.
"""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor

from starlette.responses import Response
from starlette.routing import Route

from mosq.config.plugin import has_store
from mosq.server.admin.inspect import store_state
from mosq.server.http.files import file_response
from mosq.stat_names import SYSTREE, SYSTREE_STORE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

    from mosq.config.model import Config, Listener

HEALTH = "/api/v1/health"
STATS_WITHIN_S = 5.0
TEXT = {"content-type": "text/plain"}
_ANY_ORIGIN = {"access-control-allow-origin": "*"}


def page(status: int, text: str, headers: "Mapping[str, str]" = TEXT) -> Response:
    return Response(text, status, headers)


NOT_FOUND = page(404, "Not found.\n")
INVALID_METHOD = page(405, "Invalid HTTP Method\n", {**TEXT, "allow": "GET, HEAD"})
NOT_AUTHORISED = page(401, "Not authorised\n", {**TEXT, "www-authenticate": 'Basic realm="Mosquitto API"'})
BAD_REQUEST = page(400, "Bad request.\n")
BODY_TOO_LARGE = page(413, "Request body too large.\n")
HEAD_TOO_LARGE = page(431, "Request header fields too large.\n")
FAILED = page(500, "Internal server error.\n", {**TEXT, "connection": "close"})
UNAVAILABLE = page(503, "The broker does not answer.\n")
BUSY = page(503, "Too many requests at a time.\n", {**TEXT, "retry-after": "1"})


class Statistics:
    """Reads the statistics in a thread of its own. Requests that arrive during one reading share the next one, so any
    number of clients costs the data plane one control request at a time."""

    def __init__(self, read: "Callable[[], dict[str, int]]") -> None:
        self._read = read
        self._thread = ThreadPoolExecutor(1, "mosq-http-stats")
        self._reading: asyncio.Task[dict[str, int]] | None = None
        self._next: asyncio.Task[dict[str, int]] | None = None

    async def get(self) -> dict[str, int]:
        """Return statistics that are not older than this call. Raises RuntimeError or TimeoutError if the loop does
        not answer."""
        if self._next is None:
            self._next = asyncio.create_task(self._read_after(self._reading))
        return await asyncio.wait_for(asyncio.shield(self._next), STATS_WITHIN_S)

    async def _read_after(self, earlier: "asyncio.Task[dict[str, int]] | None") -> dict[str, int]:
        if earlier is not None:
            await asyncio.wait([earlier])
        self._reading, self._next = self._next, None
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class Pages:
    """The pages of one broker."""

    def __init__(self, config: "Config", version: str, stats: "Callable[[], dict[str, int]]") -> None:
        self.config, self.version_text, self.stats = config, version, Statistics(stats)
        self.started_s = time.monotonic()

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/version", self.version),
            Route("/api/v1/listeners", self.listeners),
            Route("/api/v1/systree", self.systree),
            Route(HEALTH, self.health),
            Route("/{path:path}", self.file),
        ]

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

    def _uptime_s(self) -> int:
        return int(time.monotonic() - self.started_s)

    def _listener(self, listener: "Listener") -> dict[str, object]:
        where: dict[str, object] = {"port": listener.port} if listener.path is None else {"path": listener.path}
        return {**where, "protocol": "httpapi" if listener.protocol == "http_api" else listener.protocol,
                "tls": bool(listener.certfile and listener.keyfile), "mtls": bool(listener.require_certificate),
                "allow_anonymous": self.config.allows_anonymous(listener)}


def _json(value: object) -> Response:
    headers = {"content-type": "application/json", **_ANY_ORIGIN}
    return Response(json.dumps(value, indent="\t"), 200, headers)
