"""Who may see which page: the same users, passwords, plugins and rules as for MQTT clients, with the client id http-api
and the URL's path as the topic, for reading.

    ask (the server's thread) -> control thread: Access.take -> answer(handle < 0) -> future

Without anything that checks names, allow_anonymous decides, as for MQTT clients.
"""

import asyncio

from mosq.config.options import LOG_TYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.config.acl import AclRule
    from mosq.config.model import Config, Listener

CLIENT_ID = "http-api"
READ = 1
LET_IN, NO_OPINION = 0, -1
NOTICE = LOG_TYPES["notice"]


class Gate:
    """Asks on behalf of the listeners of one configuration."""

    def __init__(self, config: "Config", securities: "list[dict[str, Any]]", places: dict[int, int],
                 post: "Callable[[tuple[Any, ...]], None]", within_s: float) -> None:
        """`places`: id of a listener -> its security. `post` hands a request to whoever calls Access.take."""
        self.config, self.securities, self.places = config, securities, places
        self.post, self.within_s = post, within_s
        self.waiting: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Future[Any]]] = {}
        self.last = 0

    async def allows(self, listener: "Listener", user: str | None, password: bytes | None, address: str, port: int,
                     path: str) -> bool:
        place = self.places[id(listener)]
        security = self.securities[place]
        user = user or None
        verdict = NO_OPINION
        if security["authenticate"] and (user is not None or security.get("ask_anonymous")):
            verdict = await self._ask("connect", place, CLIENT_ID, user, password, address, port, 4, None, None, None)
        if verdict == NO_OPINION:
            verdict = LET_IN if self.config.allows_anonymous(listener) else 0x87
        if verdict != LET_IN:
            return False
        if security["authorize"]:
            allowed = await self._ask("acl", place, CLIENT_ID, user, address, READ, path, 0, False, None)
            if allowed is not None:
                return bool(allowed)
        if security.get("roles") is not None:
            allowed = await self._ask("roles", place, CLIENT_ID, user, path)
            if allowed is not None or security["acl"] is None:
                return bool(allowed)
        return security["acl"] is None or may_read(security["acl"], user, path)

    async def _ask(self, kind: str, *fields: object) -> "Any":
        loop = asyncio.get_running_loop()
        self.last -= 1
        handle = self.last
        future: asyncio.Future[Any] = loop.create_future()
        self.waiting[handle] = loop, future
        try:
            self.post((kind, handle, *fields))
            return await asyncio.wait_for(future, self.within_s)
        except TimeoutError:
            return 0x87 if kind == "connect" else False
        finally:
            self.waiting.pop(handle, None)

    def answered(self, answer: "tuple[Any, ...]") -> None:
        """What came back for one of our handles; any thread."""
        loop, future = self.waiting.get(answer[1], (None, None))
        if loop is None or future is None:
            return
        try:
            loop.call_soon_threadsafe(_settle, future, answer[2])
        except RuntimeError:
            pass                    # the server has ended


def _settle(future: "asyncio.Future[Any]", value: object) -> None:
    if not future.done():
        future.set_result(value)


def may_read(rules: "list[AclRule]", user: str | None, topic: str) -> bool:
    """An acl_file's word, as the data plane has it: first the user's own lines, then the patterns; a deny before what
    allows; nothing matches: no."""
    levels = topic.split("/")
    for patterns in (False, True):
        if patterns and any(c in name for name in (user or "", CLIENT_ID) for c in "+#"):
            return False
        mine = [(access, filter) for who, kind, access, filter in rules
                if (kind == "pattern") == patterns and (patterns or who == user)
                and _matches(_filled(filter, user, patterns), levels)]
        if any(access == "deny" for access, _ in mine):
            return False
        if any(access in ("read", "readwrite") for access, _ in mine):
            return True
    return False


def _filled(filter: str, user: str | None, pattern: bool) -> list[str] | None:
    levels = filter.split("/")
    if not pattern:
        return levels
    if user is None and "%u" in levels:
        return None
    return [user or "" if level == "%u" else CLIENT_ID if level == "%c" else level for level in levels]


def _matches(filter: list[str] | None, topic: list[str]) -> bool:
    if filter is None or filter[0].startswith("$") != topic[0].startswith("$"):
        return False
    for i, level in enumerate(filter):
        if level == "#":
            return True
        if i == len(topic) or (level != "+" and level != topic[i]):
            return False
    return len(filter) == len(topic)
