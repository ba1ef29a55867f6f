"""The rights of a user of the dashboard, by the rules of the broker (gate.py).

  a page or a reading request   the user may read its path, such as /dashboard/api/clients
  a message or its topic        the user may read the topic
  any change                    the user may write to ADMIN, the topic of the admin requests that do the same by MQTT
  to publish, to clear          that, and the user may write to the topic
"""

import time

from mosq.server.admin.inspect import TOPIC as ADMIN
from mosq.server.http.gate import READ, WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from starlette.requests import Request

REMEMBERED_S = 10.0             # a verdict about a topic, so that a stream of messages does not ask for each
REMEMBERED_MAX = 1000


class Rights:
    """The rights of one user, during one request."""

    def __init__(self, request: "Request") -> None:
        state = request.scope["state"]
        self._gate, self._connection, self._path = state["gate"], state["connection"], request.scope["path"]
        self.user: str | None = state["user"] or None
        self._password = state["password"]
        self._listener, self._address = self._connection.listener.config, self._connection.address
        self._may_read: dict[str, bool] = {}
        self._until_s = 0.0

    @property
    def asker(self) -> bytes:
        """The user, for bounds of one user; clients without a user name count by their network."""
        return b"-" + self._connection.network if self.user is None else b"+" + self.user.encode()

    async def still_allowed(self) -> bool:
        """Return whether the user could send this request now."""
        return bool(await self._gate.allows(self._listener, self.user, self._password,
                                            (self._address, self._connection.port), self._path))

    async def may_change(self) -> bool:
        """Return whether the user may change anything."""
        return bool(await self._gate.may_control(self._listener, self.user, self._address, ADMIN))

    async def may_write(self, topic: str) -> bool:
        """Return whether the user may publish to a topic."""
        return bool(await self._gate.may_use(self._listener, self.user, self._address, WRITE, topic))

    def has_rules(self) -> bool:
        """Return whether rules decide about topics. Without rules, every user reads everything."""
        return bool(self._gate.has_rules(self._listener))

    async def may_read(self, topic: str) -> bool:
        """Return whether the user may receive messages on a topic."""
        if not self.has_rules():
            return True
        now_s = time.monotonic()
        if now_s >= self._until_s or len(self._may_read) >= REMEMBERED_MAX:
            self._may_read, self._until_s = {}, now_s + REMEMBERED_S
        if topic not in self._may_read:
            self._may_read[topic] = await self._gate.may_use(self._listener, self.user, self._address, READ, topic)
        return self._may_read[topic]
