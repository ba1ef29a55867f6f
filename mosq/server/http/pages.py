"""Composes the answers of the HTTP API. Knows URLs and JSON; neither sockets nor access rules (gate.py).

  /api/v1/systree  /api/v1/listeners  /api/v1/version   as Mosquitto 2.1
  /api/v1/health   200 or 503: whether the loop answers; for probes, only in mosq
  anything else    a file of http_dir
"""

import json
import mimetypes
import os
import stat
import time

from mosq.config.plugin import has_store
from mosq.server.admin.inspect import store_state
from mosq.stat_names import SYSTREE, SYSTREE_STORE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.config.model import Config, Listener

FILE_BYTES_MAX = 64 << 20       # larger files are not served, because a response is made as a whole
URL_BYTES_MAX = 4096


class Page:
    """A response: status, body, further headers."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.status, self.body, self.headers = status, body, headers


NOT_FOUND = Page(404, b"Not found.\n", ("Content-Type", "text/plain"))
INVALID_METHOD = Page(405, b"Invalid HTTP Method\n", ("Content-Type", "text/plain"), ("Allow", "GET"))
NOT_AUTHORISED = Page(401, b"Not authorised\n", ("Content-Type", "text/plain"),
                      ("WWW-Authenticate", 'Basic realm="Mosquitto API"'))
FAILED = Page(500, b"Internal server error.\n", ("Content-Type", "text/plain"))
UNAVAILABLE = Page(503, b"The broker does not answer.\n", ("Content-Type", "text/plain"))

_ANY_ORIGIN = ("Access-Control-Allow-Origin", "*")


class Pages:
    """The pages of one broker."""

    def __init__(self, config: "Config", version: str, stats: "Callable[[], dict[str, int]]") -> None:
        self.config, self.version, self.stats = config, version, stats
        self.started_s = time.monotonic()

    def get(self, listener: "Listener", path: str) -> Page:
        """Return the page. `path` is decoded and has no query. May wait for the loop or the disk."""
        if not path.lower().startswith("/api/"):
            return file_page(listener.http_dir, path)
        if path == "/api/v1/version":
            return Page(200, self.version.encode(), ("Content-Type", "text/plain"), _ANY_ORIGIN)
        if path == "/api/v1/listeners":
            return _json({"listeners": [self._listener(one) for one in self.config.listeners]})
        if path not in ("/api/v1/systree", "/api/v1/health"):
            return NOT_FOUND
        try:
            stats = self.stats()
        except RuntimeError:
            return UNAVAILABLE
        if path == "/api/v1/health":
            store = {"store": store_state(stats["disk_trouble"])} if has_store(self.config) else {}
            return _json({"status": "ok", "uptime": self._uptime_s(), **store})
        shown = SYSTREE + SYSTREE_STORE if has_store(self.config) else SYSTREE
        tree = {f"$SYS/broker/{topic}": stats[name] for topic, name in shown}
        return _json({**tree, "$SYS/broker/uptime": self._uptime_s()})

    def _uptime_s(self) -> int:
        return int(time.monotonic() - self.started_s)

    def _listener(self, listener: "Listener") -> dict[str, object]:
        where: dict[str, object] = {"port": listener.port} if listener.path is None else {"path": listener.path}
        return {**where, "protocol": "httpapi" if listener.protocol == "http_api" else listener.protocol,
                "tls": bool(listener.certfile and listener.keyfile), "mtls": bool(listener.require_certificate),
                "allow_anonymous": self.config.allows_anonymous(listener)}


def _json(value: object) -> Page:
    return Page(200, json.dumps(value, indent="\t").encode(), ("Content-Type", "application/json"), _ANY_ORIGIN)


def file_page(folder: str | None, path: str) -> Page:
    """Return a file below the folder; never a file outside of it, whatever `..` and symbolic links lead to."""
    if not folder or "\0" in path or not path.startswith("/"):
        return NOT_FOUND
    root = os.path.realpath(folder)
    real = os.path.realpath(os.path.join(root, path.lstrip("/") + ("index.html" if path.endswith("/") else "")))
    if os.path.commonpath((root, real)) != root or real == root:
        return NOT_FOUND
    try:
        # the checked file must be the opened file: no symbolic link made in between, no pipe that blocks
        fd = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return NOT_FOUND
    try:
        about = os.fstat(fd)
        inside = os.path.realpath(f"/proc/self/fd/{fd}").startswith(root.rstrip("/") + "/")
        if not stat.S_ISREG(about.st_mode) or about.st_size > FILE_BYTES_MAX or not inside:
            return NOT_FOUND
        with open(fd, "rb", closefd=False) as file:
            body = file.read(FILE_BYTES_MAX)
    finally:
        os.close(fd)
    kind = mimetypes.guess_type(real)[0] or "application/octet-stream"
    return Page(200, body, ("Content-Type", kind), ("X-Content-Type-Options", "nosniff"))
