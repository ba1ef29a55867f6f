"""Lets costly questions follow each other: those that share a connection to the broker, and searches of clients. Users
get their turns one after the other, so one with many questions delays another by one. A user has a bound of waiting
questions, because each holds one of the few places of requests at work. One whose client has left is not asked.
"""

import contextlib

from mosq.server.http.dashboard.answers import RefusedError
from mosq.server.http.logins import BusyError, Logins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

WAITING_MAX = 3                 # of one user, beside the one that is being answered
WITHIN_S = 60.0                 # longest wait for a turn


class Turns:
    """The questions that wait."""

    def __init__(self, waiting_max: int = WAITING_MAX) -> None:
        """`waiting_max`: questions of one user that may wait."""
        self._places = Logins(1, waiting_max, WITHIN_S)

    @contextlib.asynccontextmanager
    async def of(self, request: "Request", asker: bytes) -> "AsyncIterator[None]":
        """Wait for the turn of a request, and hold it during the block. `asker`: Rights.asker. Raises RefusedError."""
        try:
            await self._places.enter(asker, request.scope["state"]["connection"].wait_for_login)
        except BusyError:
            raise RefusedError(429, "Earlier questions of this user are not answered yet. Try again.") from None
        try:
            if await request.is_disconnected():
                raise RefusedError(503, "The client has left.")
            yield
        finally:
            self._places.leave()
