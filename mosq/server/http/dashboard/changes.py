"""The changes that a user of the dashboard may make: kick, publish, clear a retained message, reload.

  Guard: from our own page, with the token  ->  may the user send admin requests?  ->  may it write to the topic?

Each change is a line in the log with the user, and so are refusals for a missing right, up to a bound.
"""

import asyncio
import json
import time

from starlette.responses import Response

from mosq.log_types import INFORMATION, NOTICE
from mosq.records import PublishCommand
from mosq.server.admin.commands import CommandError, Fields
from mosq.server.admin.control import Requester
from mosq.server.admin.inspect import TOPIC as ADMIN
from mosq.server.http.dashboard.answers import RefusedError, encoded, error, valid_topic
from mosq.server.http.dashboard.rights import Rights
from mosq.server.http.gate import CLIENT_ID
from mosq.server.http.pages import UNAVAILABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Executor
    from typing import Any

    from starlette.requests import Request

    from mosq.server.admin.inspect import Inspection
    from mosq.server.http.dashboard.api import Broker
    from mosq.server.http.dashboard.guard import Guard

    Handler = Callable[[Request], Awaitable[Response]]
    Change = Callable[[Rights, dict[str, Any]], Awaitable[dict[str, Any]]]

RELOAD_AFTER_S = 0.2            # the answer is sent first: a reload ends the connections of the HTTP API
REFUSALS_MAX, REFUSALS_S = 10, 10.0     # lines about refused changes in this time: a client could fill the log
SHOWN_MAX = 200                 # characters of a topic or client id in a log line


class Changes:
    """The changes of one dashboard."""

    def __init__(self, broker: "Broker", guard: "Guard", inspection: "Inspection", thread: "Executor",
                 changed: "Callable[[], None]") -> None:
        """`changed` is called after a kick."""
        self.broker, self.guard, self.inspection, self.thread, self.changed = broker, guard, inspection, thread, changed
        self._refused_s, self._refused, self._left_out = 0.0, 0, 0

    def handlers(self) -> "dict[str, Handler]":
        """Return the function of each path below the API."""
        changes: dict[str, Change] = {"kick": self.kick, "publish": self.publish, "clear": self.clear,
                                      "reload": self.reload}
        return {name: self._checked(name, change) for name, change in changes.items()}

    def _checked(self, name: str, change: "Change") -> "Handler":
        async def answer(request: "Request") -> Response:
            rights = Rights(request)
            status, why = self.guard.changing_refused(request, rights.user)
            if status:
                return error(status, why)
            try:
                given = json.loads(request.scope["state"].get("body", b""))
                if not isinstance(given, dict):
                    raise RefusedError(400, "The body must be a JSON object.")
                if not await rights.may_change():
                    self._log_refused(rights, name)
                    raise RefusedError(403, f"This needs the right to write to {ADMIN}.")
                return encoded(200, await change(rights, given))
            except RefusedError as refusal:
                return error(refusal.status, refusal.text)
            except CommandError as wrong:
                return error(409, str(wrong))
            except (ValueError, RecursionError):
                return error(400, "The body is not valid.")
            except (RuntimeError, TimeoutError):
                return UNAVAILABLE

        return answer

    async def kick(self, rights: Rights, given: "dict[str, Any]") -> "dict[str, Any]":
        """End the connection of a client. The second of two pages that do so gets an error."""
        fields = Fields(given)
        client_id = fields.text("clientid")
        self._log(INFORMATION, rights, f"kicks {_short(client_id)}")
        requester = Requester(CLIENT_ID, rights.user, "", 0)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self.thread, self.inspection.kick_client, requester, fields)
        self.changed()
        return {}

    async def publish(self, rights: Rights, given: "dict[str, Any]") -> "dict[str, Any]":
        """Publish a message in the broker's name."""
        payload, qos, retain = given.get("payload", ""), given.get("qos", 0), given.get("retain", False)
        if not isinstance(payload, str) or type(qos) is not int or qos not in (0, 1, 2) or not isinstance(retain, bool):
            raise RefusedError(400, "Expected payload (text), qos (0, 1 or 2), and retain (true or false).")
        topic = await self._topic(rights, given)
        self._log(INFORMATION, rights, f"publishes to {_short(topic)}")
        self.broker.engine.answer([PublishCommand(topic, payload.encode(), qos, retain)])
        return {}

    async def clear(self, rights: Rights, given: "dict[str, Any]") -> "dict[str, Any]":
        """Clear the retained message of a topic."""
        topic = await self._topic(rights, given)
        self._log(INFORMATION, rights, f"clears the retained message of {_short(topic)}")
        self.broker.engine.answer([PublishCommand(topic, b"", 0, True)])
        return {}

    async def reload(self, rights: Rights, given: "dict[str, Any]") -> "dict[str, Any]":
        """Begin a reload of the configuration, as SIGHUP does. Its outcome is in the log."""
        self._log(INFORMATION, rights, "reloads the configuration")
        asyncio.get_running_loop().call_later(RELOAD_AFTER_S, self.broker.reload)
        return {}

    async def _topic(self, rights: Rights, given: "dict[str, Any]") -> str:
        topic = given.get("topic")
        if not isinstance(topic, str):
            raise RefusedError(400, "Expected a topic.")
        valid_topic(topic, self.broker.config.max_topic_levels)
        if topic.startswith("$"):
            raise RefusedError(403, "The dashboard publishes to no topic that begins with $.")
        if not await rights.may_write(topic):
            raise RefusedError(403, "You may not write to this topic.")
        return topic

    def _log_refused(self, rights: Rights, name: str) -> None:
        now_s = time.monotonic()
        if now_s >= self._refused_s + REFUSALS_S:
            self._refused_s, self._refused = now_s, 0
        self._refused += 1
        if self._refused > REFUSALS_MAX:
            self._left_out += 1
            return
        more, self._left_out = self._left_out, 0
        others = f"; {more} more refused changes before have no line" if more else ""
        self._log(NOTICE, rights, f"may not {name}{others}")

    def _log(self, kind: int, rights: Rights, what: str) -> None:
        self.broker.report(kind, f"Dashboard: {_short(rights.user or '(anonymous)')} {what}.")


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
