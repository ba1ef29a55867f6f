"""Explain in words why a run ended."""

from __future__ import annotations

import os

from mosq.reason_codes import SUCCESS, WORDS

Failure = tuple[str, int, int, str, str]
OTHER_NAME = (62, 64)           # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH

CONNACK_3 = {1: "unacceptable protocol version", 2: "client id not allowed", 3: "server unavailable",
             4: "bad user name or password", 5: "not authorized"}
ENDS_5 = {SUCCESS: "normal disconnection", **WORDS}
PACKETS = ("0", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE", "SUBACK",
           "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH")


def reason(code: int) -> str:
    """Return the words for a reason code of MQTT 3.1.1 or 5.0, with the code."""
    known = CONNACK_3 if code in CONNACK_3 else ENDS_5    # a 3.x broker sends code 1 also to clients of 5.0
    return f"{known.get(code, 'unknown reason')} (0x{code:02X})"


def explain(failure: Failure, where: str, *, tls: bool = False, ws: bool = False) -> str:
    """Return a sentence. `failure` is that of Generator.failure(); `where` is HOST:PORT; tls and ws are options of the
    run.
    """
    what, code, client, stage, text = failure
    if what == "connect":
        problem = f"cannot connect to {where}: {os.strerror(code)}"
        return problem + ("; raise the limit of open files (ulimit -n)" if code == 24 else "")
    if what == "refused":
        return f"{where} refused client {client}: {reason(code)}"
    if what == "closed":
        reset = os.strerror(code) if code else "without a reason"
        if not stage:
            return f"{where} closed the connection of client {client}: {reset}"
        return (f"{where} closed the connection of client {client} in the {stage} handshake: {reset}; "
                "is this the port for it?")
    if what == "disconnect":
        return f"{where} disconnected client {client}: {reason(code)}"
    if what == "malformed":
        return f"client {client} received from {where} malformed or unexpected MQTT (packet type {PACKETS[code]})"
    if what == "subscribe":
        return f"{where} refused a subscription of client {client}: {reason(code)}"
    if what == "granted":
        return (f"{where} granted client {client} QoS {code} for a subscription, less than requested: "
                "its deliveries would not measure the requested QoS")
    if what == "numbers":
        return (f"client {client} has published as many messages as there are sequence numbers: "
                "use more publishers, or less time")
    if what == "limit":
        return f"{where} does not allow these messages: its Maximum QoS, Maximum Packet Size or Retain Available"
    if what == "certificate":
        hint = "--servername sets the expected name" if code in OTHER_NAME else "--cafile sets the trusted CAs"
        return f"the certificate of {where} was not accepted: {text}; {hint}, and --insecure accepts any"
    if what == "tls":
        hint = "; is this the port for it?" if stage == "TLS" and "alert" not in text else ""
        return f"TLS with {where} failed for client {client}: {text or 'without a reason'}{hint}"
    if what == "web":
        return f"no WebSocket at {where}: {_web(code)}"
    if what == "protocol":
        spoken, option = (("TLS", "--tls") if code == 1 else ("HTTP", "--ws"))
        change = " without" if (tls if code == 1 else ws) else " with"
        return f"{where} speaks {spoken} and not MQTT: try{change} {option}"
    return "out of memory"


def _web(code: int) -> str:
    if code == 0:
        return "the answer is not HTTP"
    if code == 1:
        return "its 101 response has the wrong key (Sec-WebSocket-Accept)"
    if code >= 1000:
        return f"its frames break RFC 6455 ({code})"
    return f"it answers with HTTP status {code} (--ws-path sets the path)"
