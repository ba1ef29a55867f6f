"""Connect a paho client to a broker, and explain its errors. This module uses neither spools nor Spark."""

import ssl
from typing import TYPE_CHECKING, Any, cast

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from mosq.pipeline import MosqPipelineError

if TYPE_CHECKING:
    from mosq.pipeline.mqtt.options import Access

ADVICE = {
    "Not authorized": "set username and passwordFile, or grant this user access",
    "Bad user name or password": "set username and passwordFile to the values that the broker knows",
    "Unsupported protocol version": 'set the option version to "3.1.1"',
    "Session taken over": "another client has the same client id: give each query a clientId of its own",
    "Banned": "the broker has banned this client",
}


def refused(access: "Access", reason: object) -> MosqPipelineError:
    """Return the error for a CONNACK that refuses the connection, with advice if the reason is known."""
    advice = ADVICE.get(str(reason))
    return MosqPipelineError(f"{access} refuses the connection: {reason}" + (f"; {advice}" if advice else ""))


def unreachable(access: "Access", error: object) -> MosqPipelineError:
    """Return the error for a broker that does not accept connections."""
    problem = f"{access} cannot be reached: {error}"
    return MosqPipelineError(f"{problem}. Is the broker running, and is the option broker right?")


def client(access: "Access", client_id: str, keep_session: bool) -> Client:
    """Return a paho client that is not connected yet.

    With keep_session the broker keeps the session, and messages are acknowledged by hand. Raises MosqPipelineError if
    the TLS files cannot be used.
    """
    session: dict[str, Any] = {} if access.version == 5 else {"clean_session": not keep_session}
    version = MQTTProtocolVersion(access.version)
    paho = Client(CallbackAPIVersion.VERSION2, client_id, protocol=version, manual_ack=keep_session, **session)
    paho.connect_timeout = access.connect_timeout_s
    if access.username is not None:
        paho.username_pw_set(access.username, access.password())
    if access.tls:
        try:
            context = ssl.create_default_context(cafile=access.ca_file)
            if access.cert_file:
                context.load_cert_chain(access.cert_file, access.key_file)
        except (OSError, ssl.SSLError) as error:
            raise MosqPipelineError(f"TLS to {access}: {error}; options caFile, certFile, keyFile") from error
        if access.tls_insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        paho.tls_set_context(context)
    return paho


def close(paho: Client) -> None:
    """Send queued packets and DISCONNECT. If paho is reconnecting, it leaves a socket open; close that too."""
    paho.disconnect()
    paho.loop_stop()
    if (left := paho.socket()) is not None:
        left.close()


def connect(paho: Client, access: "Access", session_expiry_s: int = 0, receive_maximum: int = 0) -> None:
    """Send CONNECT; paho passes the broker's answer to on_connect."""
    properties, first = None, cast("Any", {})
    if access.version == 5:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        if session_expiry_s:
            properties.SessionExpiryInterval = session_expiry_s
        if receive_maximum:
            properties.ReceiveMaximum = receive_maximum
        first = {"clean_start": not session_expiry_s}
    try:
        paho.connect(access.host, access.port, access.keepalive_s, properties=properties, **first)
    except (OSError, ValueError) as error:
        raise unreachable(access, error) from error
