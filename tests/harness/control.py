"""Call a control handler without a broker, as `mosq.server.admin.control.ControlTopics` does, but without turns."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mosq.server.admin.control import Requester, Handler

WAIT_S = 20


class Woken(threading.Event):
    """The `wake` callback of a handler; `asked` waits for it."""

    def __call__(self) -> None:
        self.set()


def asked(handler: Handler, requester: Requester, payload: bytes, woken: Woken | None = None) -> list[tuple[str, bytes]]:
    """Call the handler until it is done; return all its messages."""
    work = handler(requester, payload)
    if isinstance(work, list):
        return work
    while True:
        try:
            goes_on = next(work)
        except StopIteration as stop:
            return list(stop.value)
        if not goes_on:
            assert woken is not None and woken.wait(WAIT_S)
            woken.clear()
