"""Lets the questions that share a connection to the broker follow each other, so that no user keeps the others waiting
for long: a user has at most WAITING_MAX questions, and one whose client has left is not asked."""

import asyncio
import contextlib
from collections import Counter

from mosq.server.http.dashboard.answers import RefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

WAITING_MAX = 4                 # of one user, with the one that is being answered


class Turns:
    """Counts the waiting questions of each user."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._of: Counter[str | None] = Counter()

    @contextlib.asynccontextmanager
    async def of(self, request: "Request", user: str | None) -> "AsyncIterator[None]":
        """Wait for the turn of a request, and hold it during the block. Raises RefusedError."""
        if self._of[user] >= WAITING_MAX:
            raise RefusedError(429, "Earlier questions of this user are not answered yet. Try again.")
        self._of[user] += 1
        try:
            async with self._lock:
                if await request.is_disconnected():
                    raise RefusedError(503, "The client has left.")
                yield
        finally:
            self._of[user] -= 1
            if not self._of[user]:
                del self._of[user]
