"""Provide bridges for tests: the settings of a bridge as a configuration makes them, and a remote broker whose packets the
test writes."""

from __future__ import annotations

import socket
from typing import Any

from cext.testing import codec_api
from tests.harness import packets
from tests.harness.plane import Plane
from tests.harness.properties import Props
from tests.harness.wire import Wire
from mosq.records import BridgeEvent


def line(pattern: str | None, direction: str = "out", qos: int = 0, local_prefix: str = "", remote_prefix: str = "") -> dict[str, Any]:
    """Return the setting of `topic PATTERN DIRECTION QOS LOCAL-PREFIX REMOTE-PREFIX`."""
    return {"direction": direction, "qos": qos, "local": local_prefix + (pattern or ""), "remote": remote_prefix + (pattern or ""),
            "local_prefix": local_prefix, "remote_prefix": remote_prefix, "whole": pattern is None}


def spec(*topics: dict[str, Any], name: str = "b", **more: Any) -> dict[str, Any]:
    return {
        "name": name, "local_clientid": f"local.{name}", "remote_clientid": f"remote.{name}", "remote_username": None, "remote_password": None,
        "version": 4, "clean_start": False, "local_clean": False, "keepalive_s": 60, "try_private": True, "topics": list(topics),
        "notifications": False, "notifications_local_only": False, "notification_topic": f"$SYS/broker/connection/remote.{name}/state",
        "attempt_unsubscribe": False, "outgoing_retain": True, "receive_maximum": 0, "topic_alias_max": 10, "session_expiry_s": 0,
        "packet_max": 0, "threshold": 0, "idle_ms": 0, "tls": None, "user_timeout_ms": 0, "tcp_keepalive": None, "bind": None, **more}


def linked(plane: Plane, name: str = "b") -> BridgeEvent:
    """Return the next event of a bridge connection."""
    plane.until(lambda: any(each.kind == "bridge" and each.name == name for each in plane.waiting))
    found = next(each for each in plane.waiting if each.kind == "bridge" and each.name == name)
    plane.waiting.remove(found)
    assert isinstance(found, BridgeEvent)
    return found


class Remote(Wire):
    """The remote end of a bridge."""

    def __init__(self, plane: Plane, name: str = "b", level: int = 4, private: bool = False) -> None:
        # no super().__init__(): it would connect
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.level = level
        self.timeout_s = 10.0
        self.sock = theirs
        self._buffer = bytearray()
        plane.wires.append(self)
        plane.engine.bridge(name, "connect", host="remote", try_private=private, fd=ours.detach())

    def heard(self) -> tuple[str, Any]:
        """Return the fields of the next packet, which must have this name."""
        raw = self.read_frame()
        if raw is None:
            return "closed", None
        kind = raw[0] >> 4
        if kind in (2, 9, 11, 13):
            raise AssertionError(f"a client does not send {raw!r}")
        rc, fields = codec_api.decode(raw, self.level)
        assert rc == 0, (rc, raw)
        names = {1: "connect", 3: "publish", 4: "puback", 5: "pubrec", 6: "pubrel", 7: "pubcomp", 8: "subscribe", 10: "unsubscribe",
                 12: "pingreq", 14: "disconnect"}
        return names[kind], fields

    def hears(self, name: str) -> Any:
        got, fields = self.heard()
        assert got == name, (got, fields)
        return fields

    def accept_connect(self, present: bool = False, props: Props = ()) -> Any:
        """Read CONNECT, send CONNACK; return the fields of CONNECT."""
        fields = self.hears("connect")
        self.send(packets.Connack(present, 0, props))
        return fields

    def grant(self, n: int = 1) -> list[Any]:
        """Read n SUBSCRIBEs and grant the requested QoS; return (filter, options) of each."""
        found = []
        for _ in range(n):
            fields = self.hears("subscribe")
            (item,) = fields["items"]
            found.append((item[0].decode(), item[1]))
            code = item[1] & 3
            self.send(packets.Suback(fields["pid"], (code,)))
        return found
