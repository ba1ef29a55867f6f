"""The dashboard's routes: the files of the page, the readings of its JSON API, and its changes (changes.py).

  Bounds and Rights of app.py (login, right to read the path)  ->  Guard (is it our page?)  ->  a function here

Readings of the engine run in one thread, so they cost the data plane one control request at a time, as the statistics.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from starlette.responses import RedirectResponse
from starlette.routing import Route

from mosq.config.explain import explain
from mosq.config.plugin import has_store
from mosq.server.admin.commands import CommandError, Fields
from mosq.server.admin.control import Requester
from mosq.server.admin.inspect import Inspection, store_state
from mosq.server.http.dashboard.answers import (
    HEADERS,
    RefusedError,
    encoded,
    error,
    number,
    valid_filter,
    valid_topic,
)
from mosq.server.http.dashboard.changes import Changes
from mosq.server.http.dashboard.feed import PAGES_MAX, Feed, Hub
from mosq.server.http.dashboard.figures import HOT_MAX, Figures
from mosq.server.http.dashboard.files import SECURITY, Files
from mosq.server.http.dashboard.guard import Guard
from mosq.server.http.dashboard.inside import ClosedError
from mosq.server.http.dashboard.listing import ROWS_MAX, SORTS, STATES, Listing
from mosq.server.http.dashboard.messages import TAILS_MAX, TAILS_OF_USER_MAX, Messages, Tail
from mosq.server.http.dashboard.rights import Rights
from mosq.server.http.dashboard.turns import Turns
from mosq.server.http.gate import CLIENT_ID
from mosq.server.http.pages import NOT_FOUND, UNAVAILABLE
from mosq.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from mosq.config.model import Config
    from mosq.engine import Engine
    from mosq.log.recent import Recent
    from mosq.server.admin.control import BridgeStates
    from mosq.server.admin.hot import Hot
    from mosq.server.http.pages import Statistics

    Handler = Callable[[Request], Awaitable[Response]]
    Reading = Callable[[Request, Rights], Awaitable[Any]]

ROOT, API = "/dashboard/", "/dashboard/api/"
COUNT, COUNT_MAX = 50, 200
SEARCHES_WAITING_MAX = 7        # of one user
SEARCH_MAX = 200


class Broker:
    """The broker as the dashboard sees it. `reload` begins a reload; `report` writes a log line; any thread may call
    these and `bridges`. `began_s`: its start (monotonic)."""

    def __init__(self, config: "Config", engine: "Engine", recent: "Recent", bridges: "BridgeStates",
                 reload: "Callable[[], None]", report: "Callable[[int, str], None]", began_s: float) -> None:
        self.config, self.engine, self.recent, self.bridges = config, engine, recent, bridges
        self.reload, self.report = reload, report
        self.began_s = began_s


class Dashboard:
    """The dashboard of one configuration of a broker."""

    def __init__(self, broker: Broker, hot: "Hot", process: "Callable[[], dict[str, Any]] | None" = None) -> None:
        """`hot`: shared with others that ask the same. `process`: what to show instead of this process."""
        self.broker, self._process = broker, process
        self.files, self.guard = Files(), Guard()
        self.thread = ThreadPoolExecutor(1, "mosq-http-dashboard")
        self.messages, self.turns, self.searches = Messages(broker.engine.adopt), Turns(), Turns(SEARCHES_WAITING_MAX)
        self.inspection = Inspection(lambda: broker.engine, broker.bridges, hot, process)
        self.statistics: Statistics[dict[str, int]]
        self.hub: Hub
        self.listing: Listing
        self.figures = Figures(broker, self.inspection, self.thread)

    async def _read_process(self) -> "dict[str, Any]":
        assert self._process is not None
        return await asyncio.get_running_loop().run_in_executor(self.thread, self._process)

    # ---- for pages.py

    def routes(self, statistics: "Statistics[dict[str, int]]", otherwise: "Handler") -> list[Route]:
        """Return the routes. `otherwise` answers on listeners without a dashboard."""
        self.statistics = statistics
        self.hub = Hub(statistics.get, None if self._process is None else self._read_process)
        self.listing = Listing(self.broker.engine, self.thread)
        changes = Changes(self.broker, self.guard, self.inspection, self.thread, self.listing.forget)
        readings = {"session": self.session, "statistics": self.all_statistics, "clients": self.clients,
                    "client": self.client, "subscriptions": self.subscriptions, "retained": self.retained,
                    "message": self.message, "explain": self.explain, "system": self.system, "config": self.config,
                    "log": self.log, "drops": self.drops, "hot": self.hot,
                    "latency": self.latency}
        return [
            Route("/dashboard", self._only(_redirect, otherwise)),
            *(Route(API + name, self._only(self._reading(one), otherwise)) for name, one in readings.items()),
            Route(API + "feed", self._only(self._stream(self.feed), otherwise)),
            Route(API + "tail", self._only(self._stream(self.tail), otherwise)),
            *(Route(API + name, self._only(one, otherwise), methods=["POST"])
              for name, one in changes.handlers().items()),
            Route(ROOT + "{name}", self._only(self.file, otherwise)),
            Route(ROOT + "{path:path}", self._only(_missing, otherwise)),
        ]

    def takes_body(self, path: str) -> bool:
        """Return whether a POST to the path may have a body that is read."""
        return path.startswith(API)

    def close(self) -> None:
        """Stop the thread. The connections end with the loop."""
        self.thread.shutdown(wait=False, cancel_futures=True)

    # ---- kinds of routes

    def _only(self, handler: "Handler", otherwise: "Handler") -> "Handler":
        async def answer(request: "Request") -> "Response":
            serves = request.scope["state"]["connection"].listener.config.http_dashboard
            return await (handler if serves else otherwise)(request)

        return answer

    def _reading(self, reading: "Reading") -> "Handler":
        async def answer(request: "Request") -> "Response":
            rights = Rights(request)
            why = self.guard.reading_refused(request, rights.user)
            if why:
                return error(403, why)
            try:
                return encoded(200, await reading(request, rights))
            except RefusedError as refusal:
                return error(refusal.status, refusal.text)
            except CommandError as wrong:
                return error(404, str(wrong))
            except ClosedError as wrong:
                return error(503, str(wrong))
            except (RuntimeError, TimeoutError):
                return UNAVAILABLE

        return answer

    def _stream(self, stream: "Callable[[Request, Rights], ASGIApp]") -> "Handler":
        async def answer(request: "Request") -> "Any":
            rights = Rights(request)
            why = self.guard.reading_refused(request, rights.user)
            if why:
                return error(403, why)
            try:
                return stream(request, rights)
            except RefusedError as refusal:
                return error(refusal.status, refusal.text)

        return answer

    # ---- the page

    async def file(self, request: "Request") -> "Response":
        found = self.files.response(request.path_params["name"], request)
        return found if found is not None else NOT_FOUND

    def feed(self, request: "Request", rights: Rights) -> Feed:
        if self.hub.pages + self.messages.tails.total() >= PAGES_MAX:
            raise RefusedError(503, "Too many pages are open.")
        return Feed(self.hub, HEADERS, rights.still_allowed)

    def tail(self, request: "Request", rights: Rights) -> Tail:
        tails = self.messages.tails
        if (tails.total() >= TAILS_MAX or tails[rights.asker] >= TAILS_OF_USER_MAX
                or self.hub.pages + tails.total() >= PAGES_MAX):
            raise RefusedError(503, "Too many pages follow messages.")
        filter = valid_filter(request.query_params.get("filter", ""))
        return Tail(self.messages, self.broker.engine.adopt, filter, rights, HEADERS)

    # ---- readings

    async def session(self, request: "Request", rights: Rights) -> "dict[str, Any]":
        """Return facts about the user and the broker that do not change while the page is open."""
        return {"user": rights.user, "mayChange": await rights.may_change(), "token": self.guard.token(rights.user),
                "version": VERSION, "uptime": int(time.monotonic() - self.broker.began_s),
                "store": has_store(self.broker.config)}

    async def all_statistics(self, request: "Request", rights: Rights) -> "dict[str, int]":
        return await self.statistics.get()

    async def clients(self, request: "Request", rights: Rights) -> "dict[str, Any]":
        asked = request.query_params
        search, sort, state = asked.get("search", ""), asked.get("sort", "id"), asked.get("state", "all")
        if len(search) > SEARCH_MAX or sort not in (*SORTS, "id") or state not in STATES:
            raise RefusedError(400, "The search is not valid.")
        offset, count = number(asked.get("offset", "0"), ROWS_MAX), number(asked.get("count", str(COUNT)), COUNT_MAX)
        query = (search, sort, state, offset, count)
        found = self.listing.shared(query)
        if found is not None:
            return found
        async with self.searches.of(request, rights.asker):
            return await self.listing.get(query)

    async def client(self, request: "Request", rights: Rights) -> "dict[str, Any]":
        return await self._run(self.inspection.get_client, {"clientid": request.query_params.get("id", "")})

    async def subscriptions(self, request: "Request", rights: Rights) -> "dict[str, Any]":
        asked = request.query_params
        fields = {"clientid": asked.get("id", ""), "offset": number(asked.get("offset", "0"), 100_000)}
        return await self._run(self.inspection.list_subscriptions, fields)

    async def retained(self, request: "Request", rights: Rights) -> "dict[str, Any]":
        prefix = request.query_params.get("prefix", "")
        if prefix:
            valid_topic(prefix, self.broker.config.max_topic_levels)
        async with self.turns.of(request, rights.asker):
            return await self.messages.levels(prefix, rights)

    async def message(self, request: "Request", rights: Rights) -> "dict[str, Any]":
        topic = valid_topic(request.query_params.get("topic", ""), self.broker.config.max_topic_levels)
        if not await rights.may_read(topic):
            raise RefusedError(403, "You may not read this topic.")
        async with self.turns.of(request, rights.asker):
            found = await self.messages.look(topic)
        if found is None:
            raise RefusedError(404, "There is no retained message.")
        return found

    async def explain(self, request: "Request", rights: Rights) -> "dict[str, Any]":
        topic = valid_topic(request.query_params.get("topic", ""), self.broker.config.max_topic_levels)
        async with self.turns.of(request, rights.asker):
            found = await self.messages.explain(topic)
        if found is None:
            raise RefusedError(503, "The broker gave no answer.")
        return found

    async def system(self, request: "Request", rights: Rights) -> "dict[str, Any]":
        config, stats = self.broker.config, await self.statistics.get()
        disk = {name.removeprefix("disk_"): value for name, value in stats.items() if name.startswith("disk_")}
        return {
            "listeners": [{"where": one.where, "protocol": one.protocol, "tls": one.tls,
                           "anonymous": config.allows_anonymous(one)} for one in config.listeners],
            "bridges": self.broker.bridges(),
            "streams": await self.figures.streams(),
            "store": {**disk, "state": store_state(stats["disk_trouble"])} if has_store(config) else None,
            "withoutStore": config.without_store,
        }

    async def drops(self, request: "Request", rights: Rights) -> "dict[str, Any]":
        return await self.figures.drops(rights)

    async def hot(self, request: "Request", rights: Rights) -> "dict[str, Any]":
        return await self.figures.hot(number(request.query_params.get("limit", "20"), HOT_MAX), rights)

    async def latency(self, request: "Request", rights: Rights) -> "dict[str, Any]":
        return await self.figures.latency()

    async def config(self, request: "Request", rights: Rights) -> "dict[str, Any]":
        config = self.broker.config.whole or self.broker.config
        rows = [[one.option, one.scope, one.value, one.source, one.is_default] for one in explain(config)]
        return {"file": config.file, "rows": rows}

    async def log(self, request: "Request", rights: Rights) -> "dict[str, Any]":
        return {"lines": self.broker.recent.after(number(request.query_params.get("after", "0"), 1 << 53))}

    async def _run(self, function: "Callable[[Requester, Fields], dict[str, Any]]", fields: "dict[str, Any]"
                   ) -> "dict[str, Any]":
        requester = Requester(CLIENT_ID, None, "", 0)
        return await asyncio.get_running_loop().run_in_executor(self.thread, function, requester, Fields(fields))


async def _missing(request: "Request") -> "Response":
    return NOT_FOUND


async def _redirect(request: "Request") -> "Response":
    return RedirectResponse(ROOT, 308, SECURITY)
