"""Close what paho leaves open.

paho 2.1 makes a pair of sockets for each network thread, and closes it when the garbage collector finds the client. If the
collector finds the sockets first, Python warns, and pytest reports the warning as a failure of the test that runs then.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as paho

__all__ = ["close_pairs"]


def close_pairs() -> None:
    """Let `loop_stop` close the pair of sockets of the thread that it has ended. The thread itself must not close them: another thread may
    write to them."""
    stop: Callable[[paho.Client], Any] = paho.Client.loop_stop

    @functools.wraps(stop)
    def loop_stop(client: paho.Client) -> Any:
        is_outside = client._thread is not threading.current_thread()
        try:
            return stop(client)
        finally:
            if is_outside:
                client._reset_sockets(sockpair_only=True)

    paho.Client.loop_stop = loop_stop  # type: ignore[method-assign]
