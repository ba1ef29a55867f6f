"""Correct two errors of paho 2.1, for our tests.

It makes a pair of sockets for each network thread, and closes it when the garbage collector finds the client. If the
collector finds the sockets first, Python warns, and pytest reports the warning as a failure of the test that runs then.

It sends a QoS 2 message twice if two connections in a row end after it has got PUBREC: the second one before CONNACK, as behind a
proxy whose server has just died. Then it sends PUBLISH again instead of PUBREL [v5 4.3.3-6], and a broker that has seen the PUBREL
takes that for a new message.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as paho

__all__ = ["close_pairs", "keep_pubrels"]


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


def keep_pubrels() -> None:
    """Let a message whose PUBREL shall be sent again stay so, when another connection ends."""
    reset: Callable[[paho.Client], None] = paho.Client._messages_reconnect_reset_out

    @functools.wraps(reset)
    def messages_reconnect_reset_out(client: paho.Client) -> None:
        resent = [m for m in client._out_messages.values() if m.state == paho.mqtt_ms_resend_pubrel]
        reset(client)
        for message in resent:
            message.state = paho.mqtt_ms_resend_pubrel

    paho.Client._messages_reconnect_reset_out = messages_reconnect_reset_out  # type: ignore[method-assign]
