"""The HTTP API's sockets: one thread with an asyncio loop for all `protocol http_api` listeners. Knows HTTP (h11);
pages.py composes the answers, gate.py decides about access.

One request per connection, as in Mosquitto.
Limits: CONNECTIONS_MAX connections at a time, HEAD_BYTES_MAX of request line and headers, REQUEST_WITHIN_S until they
have arrived, RESPONSE_WITHIN_S until the client has taken the answer. Two threads may wait for the loop or the disk,
and at most WAITING_MAX requests wait for these threads.
"""

import asyncio
import base64
import binascii
import threading
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import unquote_to_bytes

import h11

from mosq.log_types import ERROR
from mosq.server.http.pages import FAILED, INVALID_METHOD, NOT_AUTHORISED, NOT_FOUND, UNAVAILABLE, URL_BYTES_MAX, Page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.config.model import Listener
    from mosq.server.http.gate import Gate
    from mosq.server.http.listeners import HttpListener
    from mosq.server.http.pages import Pages

CONNECTIONS_MAX = 64
HEAD_BYTES_MAX = 16 << 10
REQUEST_WITHIN_S = 10.0
RESPONSE_WITHIN_S = 30.0
PAGE_WITHIN_S = 5.0
WAITING_MAX = 32
STOP_WITHIN_S = 1.0


TOO_LARGE = Page(431, b"Request header fields too large.\n", ("Content-Type", "text/plain"))
BAD_REQUEST = Page(400, b"Bad request.\n", ("Content-Type", "text/plain"))


class HttpApi:
    """The server of all HTTP listeners of a broker."""

    def __init__(self, listeners: "list[HttpListener]") -> None:
        self.listeners = listeners
        self.pages: Pages | None = None
        self.gate: Gate | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._pool = ThreadPoolExecutor(2, "mosq-http")

    def start(self, pages: "Pages", gate: "Gate", report: "Callable[[int, str], None]") -> None:
        """Start the thread and return when it serves."""
        self.pages, self.gate, self.report = pages, gate, report
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), name="mosq-http", daemon=True)
        self._thread.start()
        started.wait()

    def stop(self) -> None:
        """End the thread, waiting at most STOP_WITHIN_S seconds, and close the sockets."""
        if self._loop is not None and self._ended is not None and self._thread is not None:
            try:
                self._loop.call_soon_threadsafe(self._ended.set)
            except RuntimeError:
                pass
            self._thread.join(STOP_WITHIN_S)
        self._pool.shutdown(wait=False, cancel_futures=True)
        for listener in self.listeners:
            listener.close()

    def _run(self, started: threading.Event) -> None:
        from mosq.log.destinations import block_signals

        block_signals()
        try:
            asyncio.run(self._serve(started))
        except Exception as error:      # the broker continues without the HTTP API
            self.report(ERROR, f"Error: The HTTP API has ended: {error!r}.")
        finally:
            started.set()

    async def _serve(self, started: threading.Event) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        servers = [await asyncio.start_server(self._accepter(listener), sock=one, limit=HEAD_BYTES_MAX)
                   for listener in self.listeners for one in listener.sockets]
        started.set()
        await self._ended.wait()
        for server in servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepter(self, listener: "HttpListener") -> "Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]":
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            most = listener.config.max_connections
            if len(self._tasks) >= CONNECTIONS_MAX or 0 <= most <= listener.n:
                writer.transport.abort()
                return
            listener.n += 1
            task = asyncio.get_running_loop().create_task(self._talk(listener, reader, writer))
            self._tasks.add(task)

            def done(task: "asyncio.Task[None]") -> None:
                listener.n -= 1
                self._tasks.discard(task)

            task.add_done_callback(done)

        return accept

    async def _talk(self, listener: "HttpListener", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conn = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        try:
            if listener.tls is not None:
                # not done by the asyncio server: so a handshake counts as a connection and ends with the server
                await writer.start_tls(listener.tls, ssl_handshake_timeout=REQUEST_WITHIN_S)
            try:
                request = await asyncio.wait_for(_request(conn, reader), REQUEST_WITHIN_S)
            except h11.RemoteProtocolError as error:
                page: Page | None = TOO_LARGE if error.error_status_hint == 431 else BAD_REQUEST
            else:
                page = await self._answer(listener, request, writer) if request is not None else None
            if page is not None:
                await asyncio.wait_for(_send(conn, writer, page), RESPONSE_WITHIN_S)
                await asyncio.wait_for(_part(writer, reader), REQUEST_WITHIN_S)
        except (TimeoutError, OSError, h11.LocalProtocolError):
            pass                        # the client is slow or gone
        finally:
            writer.transport.abort()

    async def _answer(self, listener: "HttpListener", request: h11.Request, writer: asyncio.StreamWriter) -> Page:
        assert self.gate is not None
        if request.method != b"GET":
            return INVALID_METHOD
        path = path_of(request.target)
        if path is None:
            return NOT_FOUND
        user, password = credentials_of(request)
        peer = writer.get_extra_info("peername")
        address, port = (peer[0], peer[1]) if isinstance(peer, tuple) else ("", 0)
        if not await self.gate.allows(listener.config, user, password, address, port, path):
            return NOT_AUTHORISED
        if self._waiting >= WAITING_MAX:
            return UNAVAILABLE
        self._waiting += 1
        try:
            return await self._page(listener.config, path)
        finally:
            self._waiting -= 1

    async def _page(self, listener: "Listener", path: str) -> Page:
        assert self.pages is not None
        work = asyncio.get_running_loop().run_in_executor(self._pool, self.pages.get, listener, path)
        try:
            return await asyncio.wait_for(work, PAGE_WITHIN_S)
        except TimeoutError:
            return UNAVAILABLE          # the data plane's loop or the disk hangs
        except Exception as error:
            self.report(ERROR, f"Error: The HTTP API cannot answer: {error!r}.")
            return FAILED


async def _request(conn: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """Return the head of the request; None if the client closed the connection. The body is not read."""
    while True:
        event = conn.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is not h11.NEED_DATA:
            return None
        conn.receive_data(await reader.read(HEAD_BYTES_MAX))


async def _send(conn: h11.Connection, writer: asyncio.StreamWriter, page: Page) -> None:
    headers = [("Date", formatdate(usegmt=True)), ("Content-Length", str(len(page.body))), ("Connection", "close"),
               *page.headers]
    if conn.our_state is h11.IDLE or conn.our_state is h11.SEND_RESPONSE:
        writer.write(conn.send(h11.Response(status_code=page.status, headers=headers,
                                            reason=HTTPStatus(page.status).phrase.encode())) or b"")
        writer.write(conn.send(h11.Data(data=page.body)) or b"")
        writer.write(conn.send(h11.EndOfMessage()) or b"")
        await writer.drain()


async def _part(writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
    """End the connection. Reads the unread body first, because otherwise the system would discard the answer."""
    if writer.can_write_eof():
        writer.write_eof()
        left = 1 << 20
        while left > 0 and (more := await reader.read(1 << 16)):
            left -= len(more)
    else:
        writer.close()
        await writer.wait_closed()


def path_of(target: bytes) -> str | None:
    """Return the decoded path without query; None if the target is not a valid path. Access rules see this path, so it
    must be the only name of its page: an empty segment, `.` or `..` makes a path invalid."""
    raw = target.split(b"?", 1)[0].split(b"#", 1)[0]
    if not raw.startswith(b"/") or len(raw) > URL_BYTES_MAX:
        return None
    try:
        path = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return None
    directories = path.split("/")[1:-1]
    if not path.isprintable() or not {"", ".", ".."}.isdisjoint(directories) or path.rpartition("/")[2] in (".", ".."):
        return None
    return path


def credentials_of(request: h11.Request) -> tuple[str | None, bytes | None]:
    """Return user and password of Basic authentication; (None, None) if there are none."""
    for name, value in request.headers:
        scheme, _, rest = value.partition(b" ")
        if name == b"authorization" and scheme.lower() == b"basic":
            try:
                user, colon, password = base64.b64decode(rest.strip(), validate=True).partition(b":")
                return (user.decode(), password) if colon else (None, None)
            except (binascii.Error, UnicodeDecodeError):
                return None, None
    return None, None
