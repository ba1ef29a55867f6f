"""The live feed: Server-Sent Events with the statistics of each second.

All pages share one reading of the statistics and one encoded event each second. A page gets the event of now, or none:
a page that reads slowly misses events, and nothing waits for it. A page that stops reading holds at most the bounds of
connections.py (64 KiB, one event, and what the kernel keeps) until its deadline ends the connection.

The hub reads from the first page on, and LINGER_S after the last one has gone, so that a page that is loaded again
finds its charts filled. Without pages it costs nothing.
"""

import asyncio
import contextlib
import json
import os
import resource
import time
from collections import deque

from mosq.server.http.logins import BusyError
from mosq.stat_names import STATS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from starlette.types import Receive, Scope, Send

    Stats = dict[str, int]
    Allowed = Callable[[], Awaitable[bool]]

PAGES_MAX = 52                  # of 64 connections: requests of these pages need some
PERIOD_S = 1.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
KEPT = 300                      # events of the charts' past
LINGER_S = 600.0
CHECK_EVERY_S = 60.0            # whether the user of an open page still has the right
OF_PROCESS = ("process_cpu_us", "process_resident_bytes")
NAMES = (*(name for name in STATS if name is not None), *OF_PROCESS)
PAST = ("publish_in", "publish_out", "publish_bytes_in", "publish_bytes_out", "clients_connected", "store_messages",
        "publish_dropped", "heap_bytes")    # statistics of the charts
HEADERS = {"content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no"}


def event(name: str, value: object) -> bytes:
    """Return an encoded event."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), json.dumps(value, separators=(",", ":")).encode())


def of_process() -> "Stats":
    """Return processor time and memory of the broker's process, of all its threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm", "rb") as file:
        resident_bytes = int(file.read().split()[1]) * PAGE_BYTES
    return dict(zip(OF_PROCESS, (round((usage.ru_utime + usage.ru_stime) * 1e6), resident_bytes), strict=True))


class Hub:
    """Reads the statistics once for all pages."""

    def __init__(self, stats: "Callable[[], Awaitable[Stats]]",
                 process: "Callable[[], Awaitable[dict[str, Any]]] | None" = None) -> None:
        """`process`: of several workers, processor time and memory of all."""
        self._stats, self._process = stats, process
        self.pages = 0
        self._past: deque[bytes] = deque(maxlen=KEPT)
        self._last = b""                # event of the last second
        self._left_s = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._next: asyncio.Future[bytes] | None = None

    def enter(self) -> None:
        """Count a page, and begin to read with the first."""
        self.pages += 1
        if self._reading is None or self._reading.done():
            self._past.clear()
            self._last = b""
            self._reading = asyncio.create_task(self._read())

    def leave(self) -> None:
        self.pages -= 1
        self._left_s = time.monotonic()

    def next(self) -> "asyncio.Future[bytes]":
        """Return the future of the next event. All pages get the same."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        return self._next

    def hello(self) -> bytes:
        """Return the first events of a page: names of the values in the later ones, the past of the charts, and the
        event of the last second."""
        names = json.dumps({"names": NAMES, "past": PAST}, separators=(",", ":"))[:-1].encode()
        return b'event: hello\ndata: %s,"rows":[%s]}\n\n%s' % (names, b",".join(self._past), self._last)

    async def _read(self) -> None:
        due_s = time.monotonic()
        while self.pages or time.monotonic() < self._left_s + LINGER_S:
            try:
                stats = {**await self._stats(), **await self._of_process()}
            except (RuntimeError, TimeoutError):
                self._give(event("lost", None))
            else:
                now_ms = int(time.time() * 1000)
                past = ",".join([str(now_ms), *(str(stats[name]) for name in PAST)])
                self._past.append(f"[{past}]".encode())
                self._give(event("stats", [now_ms, *(stats[name] for name in NAMES)]))
            due_s = max(due_s + PERIOD_S, time.monotonic() + PERIOD_S / 2)
            await asyncio.sleep(due_s - time.monotonic())

    async def _of_process(self) -> "Stats":
        if self._process is None:
            return of_process()
        found = await self._process()
        return dict(zip(OF_PROCESS, (round(found["cpuSeconds"] * 1e6), found["residentBytes"]), strict=True))

    def _give(self, encoded: bytes) -> None:
        self._last = encoded
        given, self._next = self._next, None
        if given is not None and not given.done():
            given.set_result(encoded)


class Stream:
    """An answer that never ends by itself: events, until the client has gone or lost its right."""

    def __init__(self, headers: dict[str, str], allowed: "Allowed") -> None:
        self.headers, self.allowed = headers, allowed

    async def events(self, gone: "asyncio.Task[None]", put: "Callable[[bytes], Awaitable[None]]") -> None:
        """Send events with `put` until `gone` is done."""
        raise NotImplementedError

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        scope["state"]["connection"].endless = True
        headers = [(name.encode(), value.encode()) for name, value in {**HEADERS, **self.headers}.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        gone = asyncio.create_task(_gone(receive))

        async def put(encoded: bytes) -> None:
            await send({"type": "http.response.body", "body": encoded, "more_body": True})

        try:
            # without an answer about a right the page ends: it connects again, and logs in as any request
            with contextlib.suppress(BusyError):
                await self.events(gone, put)
            if not gone.done():
                await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()


class Feed(Stream):
    """The statistics of each second."""

    def __init__(self, hub: Hub, headers: dict[str, str], allowed: "Allowed") -> None:
        super().__init__(headers, allowed)
        self.hub = hub

    async def events(self, gone: "asyncio.Task[None]", put: "Callable[[bytes], Awaitable[None]]") -> None:
        """Send the statistics until the client has gone."""
        self.hub.enter()
        try:
            await put(self.hub.hello())
            check_s = time.monotonic() + CHECK_EVERY_S
            while True:
                following = self.hub.next()
                await asyncio.wait((gone, following), return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return
                if time.monotonic() >= check_s:
                    check_s = time.monotonic() + CHECK_EVERY_S
                    if not await self.allowed():
                        await put(event("refused", None))
                        return
                await put(following.result())
        finally:
            self.hub.leave()


async def _gone(receive: "Receive") -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
