"""paho's client for a Connection: login, TLS, WebSockets and proxy. Knows neither topics nor payloads."""

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mosq.tools.ctl.connection import Connection

UNIX_PORT = 1           # paho wants a port also for a Unix socket


def made_for(connection: "Connection", client_id: str, is_clean: bool, timeout_s: float) -> paho.Client:
    """Return a client that is not connected yet and connects only once. `is_clean` is for MQTT 3.x; 5.0 has it in
    CONNECT. Raises ConnectionProblemError, and ValueError for what paho refuses."""
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=client_id,
                         clean_session=is_clean if connection.level < 5 else None,
                         protocol=MQTTProtocolVersion(connection.level), transport=connection.transport,
                         reconnect_on_failure=False)
    if connection.username is not None:
        client.username_pw_set(connection.username, connection.password)
    context = connection.tls_context()
    if context is not None:
        client.tls_set_context(context)
    if connection.transport == "websockets":
        client.ws_set_options(path=connection.path)
    proxy = connection.proxy_arguments()
    if proxy is not None:
        client.proxy_set(**proxy)
    client.connect_timeout = timeout_s
    return client


def connect(client: paho.Client, connection: "Connection", keepalive_s: int, **of_connect: "Any") -> None:
    """Open the connection and send CONNECT. Raises OSError, also for TLS, and ValueError."""
    port = UNIX_PORT if connection.transport == "unix" else connection.port_used
    client.connect(connection.host, port, keepalive_s, connection.bind, **of_connect)


def why_not_connected(connection: "Connection", error: Exception) -> str:
    """Return the reason of an error of `connect`, and the address."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    where = connection.host if connection.transport == "unix" else f"{connection.host} port {connection.port_used}"
    return f"{reason}. Is there a broker at {where}?"
