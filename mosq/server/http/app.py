"""The ASGI application of the HTTP API: the routes of pages.py behind two middlewares.

  uvicorn -> Bounds: framing, body, method, path, number of requests -> Rights: login and rules (gate.py) -> route

The path that Rights checks is the one that the route gets: Bounds decodes it once and refuses paths that are not the
only name of their page.
"""

import base64
import binascii
from collections import Counter
from urllib.parse import unquote_to_bytes

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect

from mosq.server.http.connections import CLOSE_WITHIN_S, CONNECTIONS_MAX, closing_headers
from mosq.server.http.gate import READ
from mosq.server.http.logins import BusyError
from mosq.server.http.pages import (
    BAD_REQUEST,
    BODY_TOO_LARGE,
    BUSY,
    FAILED,
    FORBIDDEN,
    HEAD_TOO_LARGE,
    INVALID_METHOD,
    NOT_AUTHORISED,
    NOT_FOUND,
    is_probe,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mosq.server.http.connections import Connection
    from mosq.server.http.gate import Gate
    from mosq.server.http.pages import Pages
    from mosq.server.http.refusals import FailedLogins

    Headers = list[tuple[bytes, bytes]]

HEADERS_MAX = 100
# a body that no page takes is read, and discarded, so that the client gets the answer
BODY_BYTES_MAX = 1 << 20
KEPT_BYTES_MAX = 64 << 10       # of a body that a page takes
METHODS = ("GET", "HEAD")       # of every page; POST where the pages take a body
URL_BYTES_MAX = 4096
INDEX = "index.html"            # the page of a path that ends with `/`
# requests of probes share one reading of the statistics, so they only count for the first of these
HEALTH_MAX = CONNECTIONS_MAX // 4   # of one network
WORKING_MAX = 32                # requests that are logged in or composed
RUNNING_MAX = 96                # the same, and those whose answer is sent, or whose file hangs on the disk


def application(pages: "Pages", gate: "Gate", failed_logins: "FailedLogins") -> Starlette:
    """Return the application. Starlette answers 405 for a path that lacks the method."""
    async def failed(request: "Request", error: Exception) -> "Response":
        return FAILED

    async def not_found(request: "Request", error: Exception) -> "Response":
        return NOT_FOUND

    async def invalid_method(request: "Request", error: Exception) -> "Response":
        return INVALID_METHOD

    app = Starlette(routes=pages.routes(),
                    middleware=[Middleware(Bounds, pages), Middleware(Rights, gate, failed_logins)],
                    exception_handlers={Exception: failed, 404: not_found, 405: invalid_method})
    app.router.redirect_slashes = False     # a path has one name
    return app


class Bounds:
    """Checks a request before anything else sees it, and reports to its connection which side it waits for."""

    def __init__(self, app: "ASGIApp", pages: "Pages") -> None:
        self.app, self.pages = app, pages
        self.working = self.running = 0
        self.health: Counter[bytes] = Counter()     # network -> its requests of probes

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        connection: Connection = scope["state"]["connection"]
        path = path_of(scope["raw_path"])
        takes = scope["method"] == "POST" and path is not None
        body = bytearray() if takes and self.pages.takes_body(connection.listener.config, str(path)) else None
        refusal = framing_error(scope["headers"], scope["http_version"])
        if refusal is None:
            try:
                refusal = await _read_body(scope["headers"], receive, body)
            except ClientDisconnect:
                return
        if refusal is not None:
            connection.refuse(refusal)
            return
        connection.work()
        try:
            if body is not None:
                scope["state"]["body"] = bytes(body)
            await self._run(connection, scope, path, receive, send)
        finally:
            connection.expect_client(CLOSE_WITHIN_S)

    async def _run(self, connection: "Connection", scope: "Scope", path: str | None, receive: "Receive", send: "Send"
                   ) -> None:
        probes = path is not None and is_probe(connection.listener.config, path)
        place: Place | HealthPlace = HealthPlace(self, connection.network) if probes else Place(self)

        async def tracked(message: "Message") -> None:
            if message["type"] == "http.response.start":
                place.answering()
                connection.expect_client()
                message = {**message, "headers": [*closing_headers(), *message["headers"]]}
            await send(message)

        if scope["method"] not in METHODS and "body" not in scope["state"]:
            await INVALID_METHOD(scope, receive, tracked)
        elif path is None:
            await NOT_FOUND(scope, receive, tracked)
        elif not place.take():
            await BUSY(scope, receive, tracked)
        else:
            try:
                await self.app({**scope, "path": path, "root_path": ""}, receive, tracked)
            finally:
                place.leave()


class Place:
    """The place of one request among those that run at the same time."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.works = False

    def take(self) -> bool:
        """Return whether there was room."""
        bounds = self.bounds
        if bounds.working >= WORKING_MAX or bounds.running >= RUNNING_MAX:
            return False
        bounds.working += 1
        bounds.running += 1
        self.works = True
        return True

    def answering(self) -> None:
        """From now on the request waits for its client."""
        if self.works:
            self.works = False
            self.bounds.working -= 1

    def leave(self) -> None:
        self.answering()
        self.bounds.running -= 1


class HealthPlace:
    """The place of one request of a probe among those of its network."""

    def __init__(self, bounds: Bounds, network: bytes) -> None:
        self.health, self.network = bounds.health, network

    def take(self) -> bool:
        """Return whether there was room."""
        if self.health[self.network] >= HEALTH_MAX:
            return False
        self.health[self.network] += 1
        return True

    def answering(self) -> None:
        """The answer is short, so nothing changes."""

    def leave(self) -> None:
        self.health[self.network] -= 1
        if not self.health[self.network]:
            del self.health[self.network]


class Rights:
    """Lets a request through if its user may read the path. The status 401 asks for another user name or password,
    403 reports that the right is missing."""

    def __init__(self, app: "ASGIApp", gate: "Gate", failed_logins: "FailedLogins") -> None:
        self.app, self.gate, self.failed_logins = app, gate, failed_logins

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        connection: Connection = scope["state"]["connection"]
        user, password = credentials_of(scope["headers"])
        connection.expect_client()      # a client whose password is checked may be evicted
        try:
            refusal = await self._refusal(connection, user, password, scope["path"])
        except BusyError:
            await BUSY(scope, receive, send)
            return
        connection.work()
        scope["state"].update(gate=self.gate, user=user, password=password)     # for the dashboard
        await (self.app if refusal is None else refusal)(scope, receive, send)

    async def _refusal(self, connection: "Connection", user: str | None, password: bytes | None, path: str
                       ) -> "Response | None":
        listener, peer = connection.listener.config, (connection.address, connection.port)
        urgent = is_probe(listener, path)
        if not await self.gate.logs_in(listener, user, password, peer, urgent, connection.wait_for_login):
            if user:            # a browser's first request has none
                self.failed_logins.add(connection.address, user)
            return NOT_AUTHORISED
        if await self.gate.may_use(listener, user, connection.address, READ, path):
            return None
        return FORBIDDEN if user else NOT_AUTHORISED


def framing_error(headers: "Headers", version: str) -> "Response | None":
    """Return the refusal of a request whose end two servers could see at different places (RFC 9112 6.1, 6.3), or that
    has too many headers. h11 has already checked the headers one by one."""
    if len(headers) > HEADERS_MAX:
        return HEAD_TOO_LARGE
    names = [name for name, _ in headers]
    coded = names.count(b"transfer-encoding")
    if coded and (b"content-length" in names or coded > 1 or version == "1.0"):
        return BAD_REQUEST
    return BAD_REQUEST if version not in ("1.0", "1.1") else None


async def _read_body(headers: "Headers", receive: "Receive", kept: bytearray | None) -> "Response | None":
    """Read the body into `kept`, or discard it; return the refusal if it is too long. The connection's deadline holds.
    Raises ClientDisconnect if the connection has ended, or its body was refused."""
    left = BODY_BYTES_MAX if kept is None else KEPT_BYTES_MAX
    for name, value in headers:
        if name == b"content-length" and int(value) > left:
            return BODY_TOO_LARGE
        if name == b"expect" and kept is None:
            return None                 # the client waits for the answer before it sends the body
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        left -= len(part)
        if left < 0:
            return BODY_TOO_LARGE
        if kept is not None:
            kept += part
        if not message.get("more_body"):
            return None


def path_of(target: bytes) -> str | None:
    """Return the decoded path without query; None if the target is not a valid path. Access rules see this path, so it
    must be the only name of its page: an empty segment, `.` or `..` makes a path invalid, and so does a backslash. A
    path that ends with `/` is another name of its index.html. An encoded slash and a fragment are no part of a path,
    but a proxy in front may see them as one."""
    raw = target.split(b"?", 1)[0]
    if not raw.startswith(b"/") or len(raw) > URL_BYTES_MAX or b"#" in target or b"%2f" in raw.lower():
        return None
    try:
        path = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return None
    directories = path.split("/")[1:-1]
    if not path.isprintable() or not {"", ".", ".."}.isdisjoint(directories) or path.rpartition("/")[2] in (".", ".."):
        return None
    if "\\" in path:
        return None
    return f"{path}{INDEX}" if path.endswith("/") else path


def credentials_of(headers: "Headers") -> tuple[str | None, bytes | None]:
    """Return user and password of Basic authentication; (None, None) if there are none."""
    for name, value in headers:
        scheme, _, rest = value.partition(b" ")
        if name == b"authorization" and scheme.lower() == b"basic":
            try:
                user, colon, password = base64.b64decode(rest.strip(), validate=True).partition(b":")
                return (user.decode(), password) if colon else (None, None)
            except (binascii.Error, UnicodeDecodeError):
                return None, None
    return None, None
