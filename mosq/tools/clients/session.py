"""One client of `mosq pub` or `mosq sub`: paho's client from the options, the connection, and its errors."""

import os
import secrets
import socket
import ssl
import sys

import paho.mqtt.client as paho

from mosq.tools.clients.errors import EXIT_LOST, EXIT_TLS, ClientError, refused
from mosq.tools.ctl import paho_client
from mosq.tools.ctl.connection import ConnectionProblemError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

    from mosq.tools.ctl.connection import Connection

CONNECT_TIMEOUT_S = 10.0
MQTT_5 = 5


class Will:
    """The will of the client."""

    def __init__(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        self.topic, self.payload, self.qos, self.retain = topic, payload, qos, retain


class Plan:
    """The parameters of a session, apart from its Connection."""

    def __init__(self) -> None:
        self.keepalive_s = 60
        self.is_clean = True
        self.will: Will | None = None
        self.properties: dict[str, Properties] = {}
        self.inflight: int | None = None
        self.nodelay = False


class Session:
    """A client with paho's callbacks. Its owner calls `loop`, or lets paho's thread do it."""

    def __init__(self, connection: "Connection", plan: Plan) -> None:
        """Make the client without connecting. Raises ClientError."""
        self.connection, self.plan = connection, plan
        self.is_v5 = connection.level >= MQTT_5
        self.refusal: ClientError | None = None
        self.is_connected = False
        try:
            self.client = self._made()
        except ConnectionProblemError as error:
            raise ClientError(f"Error: {error}") from None
        except ValueError as error:
            raise ClientError(f"Error: {error}.") from None

    def _made(self) -> paho.Client:
        connection, plan = self.connection, self.plan
        name = connection.client_id or ""
        if not name and connection.level == 3:      # MQTT 3.1 has no empty client id
            name = f"mosq-{secrets.token_hex(9)}"
        client = paho_client.made_for(connection, name, plan.is_clean, CONNECT_TIMEOUT_S)
        client.suppress_exceptions = False
        if plan.will is not None:
            client.will_set(plan.will.topic, plan.will.payload, plan.will.qos, plan.will.retain,
                            plan.properties.get("WILL"))
        if plan.inflight is not None:
            client.max_inflight_messages_set(plan.inflight)
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        if plan.nodelay and connection.transport == "tcp":
            client.on_socket_open = self._opened
        if connection.debug:
            client.on_log = self._log
        return client

    def connect(self) -> None:
        """Open the connection and send CONNECT. Raises ClientError."""
        plan = self.plan
        try:
            paho_client.connect(self.client, self.connection, plan.keepalive_s,
                                clean_start=plan.is_clean if self.is_v5 else paho.MQTT_CLEAN_START_FIRST_ONLY,
                                properties=plan.properties.get("CONNECT"))
        except ssl.SSLError as error:
            raise self._tls_error(error) from None
        except (OSError, ValueError) as error:
            raise ClientError(f"Error: {paho_client.why_not_connected(self.connection, error)}") from None

    def reconnect(self) -> bool:
        """Open the connection again; return whether a broker is there. Raises ClientError."""
        try:
            self.client.reconnect()
        except ssl.SSLError as error:
            raise self._tls_error(error) from None
        except (OSError, ValueError):
            return False
        return True

    def disconnect(self) -> None:
        """Send DISCONNECT, if there is a connection."""
        properties = self.plan.properties.get("DISCONNECT")
        self.client.disconnect(properties=properties)

    def raise_refusal(self) -> None:
        """Raise ClientError if the broker has refused the login."""
        if self.refusal is not None:
            raise self.refusal

    def lost(self) -> ClientError:
        """Return the error for a connection that the broker has ended."""
        return ClientError("Error: The connection was lost.", EXIT_LOST)

    def unanswered(self) -> ClientError:
        """Return the error for a CONNECT without an answer."""
        return ClientError(f"Error: The broker has not answered CONNECT within {CONNECT_TIMEOUT_S:g} s. Is it an MQTT "
                           "broker?")

    # ------------------------------------------------------------ callbacks

    def _connected(                     # parameters: those of paho's callback
            self, client: paho.Client, userdata: object, flags: object, reason: "ReasonCode",
            properties: object) -> None:
        if reason.is_failure:
            self.refusal = refused(reason.value, str(reason), self.connection.level,
                                   self.connection.username is not None)
            return
        self.is_connected = True
        self.on_connect()

    def on_connect(self) -> None:
        """Do what follows an accepted CONNECT; subclasses replace it."""

    def _disconnected(                  # parameters: those of paho's callback
            self, client: paho.Client, userdata: object, flags: object, reason: "ReasonCode",
            properties: object) -> None:
        self.is_connected = False

    def _opened(self, client: paho.Client, userdata: object, opened: "Any") -> None:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _log(self, client: paho.Client, userdata: object, level: int, text: str) -> None:
        name = os.fsdecode(client._client_id) or "(null)"
        sys.stdout.write(f"Client {name} {text[:1].lower()}{text[1:]}\n")     # one write: two threads may log
        sys.stdout.flush()

    def _tls_error(self, error: ssl.SSLError) -> ClientError:
        reason = (getattr(error, "verify_message", "") or error.reason or str(error)).replace("_", " ")
        advice = "Is this the port for TLS, and a version that both sides have?"
        if isinstance(error, ssl.SSLCertVerificationError):
            advice = ("Give the certificate of the broker's CA with --cafile."
                      if "hostname" not in str(error).lower() and "IP address" not in str(error) else
                      "The certificate is for another name: connect with the name in it (-h), or give --insecure "
                      "for a test.")
        return ClientError(f"Error: A TLS error occurred: {reason}. {advice}", EXIT_TLS)
