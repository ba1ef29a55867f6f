"""Decides which client may read which page, and which topics it may use. The users, passwords, plugins and rules are
those of MQTT clients; the client id is http-api, and the topic of a page is the URL's path, for reading.

  allows (the server's thread) -> control thread: Access.take -> answer(handle < 0) -> future

If no component checks user names, allow_anonymous decides, as for MQTT clients.
"""

import asyncio
import ipaddress
import itertools

from mosq.auth.networks import subscriber_of
from mosq.auth.runner import filled, matches
from mosq.reason_codes import NOT_AUTHORIZED, SUCCESS
from mosq.records import NO_OPINION, AccessRequest, LoginAnswer, LoginRequest, RolesRequest
from mosq.server.http.logins import BusyError, Logins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.config.acl import AclRule
    from mosq.config.model import Config, Listener
    from mosq.records import Answer, Request

CLIENT_ID = "http-api"
READ, WRITE = 1, 2
LOGINS_MAX = 4                  # checked at a time, so that guesses by HTTP do not fill the queue of MQTT's logins
LOGINS_WAITING_MAX = 16         # of one network
URGENT_LOGINS_MAX = 1
URGENT_LOGINS_WAITING_MAX = 4
# below 0, and one sequence for all gates: an answer to a request from before a reload must not settle a later one
_handles = itertools.count(-1, -1)


class Gate:
    """Sends auth requests for the HTTP listeners of one configuration."""

    def __init__(self, config: "Config", securities: "list[dict[str, Any]]", places: dict[int, int],
                 post: "Callable[[Request], None]", within_s: float) -> None:
        """`places`: id of a listener -> index of its security. `post` passes a request to the thread that calls
        Access.take. `within_s`: longest wait for an answer, in seconds."""
        self.config, self.securities, self.places = config, securities, places
        self.post, self.within_s = post, within_s
        self.waiting: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Future[Any]]] = {}
        self.logins = Logins(LOGINS_MAX, LOGINS_WAITING_MAX, within_s)
        self.urgent_logins = Logins(URGENT_LOGINS_MAX, URGENT_LOGINS_WAITING_MAX, within_s)
        self._closed = False

    async def allows(self, listener: "Listener", user: str | None, password: bytes | None, peer: tuple[str, int],
                     path: str) -> bool:
        """Return whether the client may log in and read the page. Raises BusyError."""
        return (await self.logs_in(listener, user, password, peer)
                and await self.may_use(listener, user, peer[0], READ, path))

    async def logs_in(self, listener: "Listener", user: str | None, password: bytes | None, peer: tuple[str, int],
                      urgent: bool = False,
                      waits: "Callable[[asyncio.Future[bool]], None]" = lambda place: None) -> bool:
        """Return whether the client may log in. A missing answer counts as refusal. An `urgent` login does not wait
        for the others. `waits` gets the place of a login that waits (logins.py). Raises BusyError if the login got
        none, or if the gate is closed."""
        if self._closed:
            raise BusyError
        logins = self.urgent_logins if urgent else self.logins
        return await self._logs_in(listener, user or None, password, peer, logins, waits)

    async def may_use(self, listener: "Listener", user: str | None, address: str, access: int, topic: str) -> bool:
        """Return whether a client that has logged in may use the topic. `access`: READ or WRITE. Raises BusyError if
        the gate is closed."""
        return await self._verdict(listener, user or None, address, access, topic) is not False

    async def may_control(self, listener: "Listener", user: str | None, address: str, topic: str) -> bool:
        """Return whether a client that has logged in may send commands on a topic below $CONTROL/mosq/. As in the data
        plane (handle_control.pyx), a rule must allow it; without any rules, clients of this machine may."""
        verdict = await self._verdict(listener, user or None, address, WRITE, topic)
        return is_local(address, self.config.control_loopback) if verdict is None else verdict

    def has_rules(self, listener: "Listener") -> bool:
        """Return whether the verdict about a topic may depend on the user."""
        security = self.securities[self.places[id(listener)]]
        return bool(security["authorize"]) or security.get("roles") is not None or security["acl"] is not None

    async def _logs_in(     # parameters: those of `logs_in`
            self, listener: "Listener", user: str | None, password: bytes | None, peer: tuple[str, int], logins: Logins,
            waits: "Callable[[asyncio.Future[bool]], None]") -> bool:
        (address, port), place = peer, self.places[id(listener)]
        security = self.securities[place]
        verdict = NO_OPINION
        if security["authenticate"] and (user is not None or security.get("login_anonymous")):
            verdict = await self._login(logins, waits, LoginRequest(
                self._handle(), place, CLIENT_ID, user, password, address, port, 4, None, None, None))
        if verdict == NO_OPINION:
            verdict = SUCCESS if self.config.allows_anonymous(listener) else NOT_AUTHORIZED
        return verdict == SUCCESS

    async def _verdict(self, listener: "Listener", user: str | None, address: str, access: int, topic: str
                       ) -> bool | None:
        """Return the verdict of plugins and rules; None: there are no rules."""
        place = self.places[id(listener)]
        security = self.securities[place]
        if security["authorize"]:
            allowed = await self._request(AccessRequest(
                self._handle(), place, CLIENT_ID, user, address, access, topic, 0, False))
            if allowed is not None:
                return bool(allowed)
        if security.get("roles") is not None:
            allowed = await self._request(RolesRequest(self._handle(), place, CLIENT_ID, user, topic, access))
            if allowed is not None or security["acl"] is None:
                return bool(allowed)
        return None if security["acl"] is None else may_use(security["acl"], user, topic, access)

    async def _login(self, logins: Logins, waits: "Callable[[asyncio.Future[bool]], None]", request: LoginRequest
                     ) -> int:
        await logins.enter(subscriber_of(request.address), waits)
        try:
            return int(await self._request(request))
        finally:
            logins.leave()

    def _handle(self) -> int:
        return next(_handles)

    def close(self) -> None:
        """Ask no more questions: they belong to a configuration that is not in force any more. Called on the server's
        loop; requests that wait for an answer get BusyError."""
        self._closed = True
        for _, future in self.waiting.values():
            if not future.done():
                future.set_exception(BusyError())

    async def _request(self, request: "Request") -> "Any":
        if self._closed:
            raise BusyError
        loop, handle = asyncio.get_running_loop(), request.handle
        future: asyncio.Future[Any] = loop.create_future()
        self.waiting[handle] = loop, future
        try:
            self.post(request)
            return await asyncio.wait_for(future, self.within_s)
        except TimeoutError:
            return NOT_AUTHORIZED if isinstance(request, LoginRequest) else False
        finally:
            self.waiting.pop(handle, None)

    def answered(self, answer: "Answer") -> None:
        """Deliver the answer to one of our requests; any thread may call this."""
        loop, future = self.waiting.get(answer.handle, (None, None))
        if loop is None or future is None:
            return
        try:
            value = answer.code if isinstance(answer, LoginAnswer) else getattr(answer, "allowed", None)
            loop.call_soon_threadsafe(_settle, future, value)
        except RuntimeError:
            pass                    # the server has ended


def _settle(future: "asyncio.Future[Any]", value: object) -> None:
    if not future.done():
        future.set_result(value)


def is_local(address: str, is_loopback_local: bool) -> bool:
    """Return whether a client is on this machine: it uses a unix socket, whose address is "", or the loopback
    interface, if that counts as local."""
    if not address:
        return True
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = getattr(found, "ipv4_mapped", None) or found
    return is_loopback_local and inner.is_loopback


def may_use(rules: "list[AclRule]", user: str | None, topic: str, access: int = READ) -> bool:
    """Return an acl_file's verdict by the data plane's rules: the user's own lines count before the patterns, a deny
    before an allow; without a match access is denied. `access`: READ or WRITE."""
    wanted = "read" if access == READ else "write"
    names = {"%u": user or "", "%c": CLIENT_ID}
    for patterns in (False, True):
        if patterns and any(c in name for name in names.values() for c in "+#"):
            return False
        mine = [word for name, kind, word, filter in rules
                if (kind == "pattern") == patterns and (patterns or name == user)
                and (levels := _levels(filter, user, names if patterns else {})) is not None and matches(levels, topic)]
        if "deny" in mine:
            return False
        if wanted in mine or "readwrite" in mine:
            return True
    return False


def _levels(filter: str, user: str | None, names: dict[str, str]) -> tuple[str, ...] | None:
    """Return the levels of a rule's filter; None if it is a pattern that needs a user name, and there is none."""
    return None if names and user is None and "%u" in filter.split("/") else filled(filter, names)
