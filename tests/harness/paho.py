"""Close what paho leaves open.

paho 2.1 makes a pair of sockets for each network thread, and closes it when the garbage collector finds the client. If the
collector finds the sockets first, Python warns, and pytest reports the warning as a failure of the test that runs then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as paho

__all__ = ["close_pairs"]


def close_pairs() -> None:
    """Let each network thread of paho close its pair of sockets when it ends."""
    loop: Callable[..., Any] = paho.Client.loop_forever

    @functools.wraps(loop)
    def loop_forever(client: paho.Client, *args: Any, **options: Any) -> Any:
        try:
            return loop(client, *args, **options)
        finally:
            client._reset_sockets(sockpair_only=True)

    paho.Client.loop_forever = loop_forever  # type: ignore[method-assign,assignment]
