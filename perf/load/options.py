"""What a load test is asked for: locust's `--host` and the arguments of our own, which its web page shows as well."""

from __future__ import annotations

import ssl
import urllib.parse
from dataclasses import dataclass
from typing import Any, Literal

from perf.load.ledger import HEADER

DEFAULT_HOST = "mqtt://127.0.0.1:1883"
# scheme: port, paho's transport, over TLS
SCHEMES: dict[str, tuple[int, Literal["tcp", "websockets"], bool]] = {
    "mqtt": (1883, "tcp", False), "mqtts": (8883, "tcp", True), "ws": (80, "websockets", False),
    "wss": (443, "websockets", True)}
MAX_BYTES = 16 << 20            # of one payload


class OptionError(ValueError):
    """What is wrong with --host or --cafile, in words."""


def without_login(url: str) -> str:
    """As it may be said and written. What stands before the last @ goes, however malformed the rest is."""
    before, at, rest = url.rpartition("@")
    scheme, there, _ = before.partition("://")
    return f"{scheme + there if scheme.isalpha() else ''}***@{rest}" if at else url


@dataclass(frozen=True)
class Target:
    """Where the broker is."""

    url: str
    host: str
    port: int
    transport: Literal["tcp", "websockets"]
    tls: bool
    path: str

    @classmethod
    def of(cls, url: str | None) -> Target:
        url = url or DEFAULT_HOST
        if "@" in url:          # first: other complaints have the address in them
            raise OptionError("the address of the broker has a user name in it; use --username and --password")
        try:
            parts = urllib.parse.urlsplit(url)
            port = parts.port
        except ValueError as e:
            raise OptionError(f"{url!r} is not an address: {e}") from None
        if parts.scheme not in SCHEMES or not parts.hostname:
            raise OptionError(f"{url!r} is not an address of a broker; it looks like {DEFAULT_HOST}, or begins with "
                            + ", ".join(f"{scheme}://" for scheme in SCHEMES if scheme != "mqtt"))
        default, transport, tls = SCHEMES[parts.scheme]
        return cls(url, parts.hostname, port or default, transport, tls, parts.path or "/mqtt")


@dataclass(frozen=True)
class Settings:
    """Of one test. What the web page sends is brought into its range."""

    username: str = ""
    password: str = ""
    mqtt: str = "3.1.1"
    qos: int = 1
    size: int = 64
    rate: float = 1.0
    backlog: int = 5
    timeout_s: float = 10.0
    prefix: str = "locust"
    cafile: str = ""
    insecure: bool = False

    @classmethod
    def of(cls, options: Any) -> Settings:
        return cls(
            username=options.mqtt_username, password=options.mqtt_password, mqtt=options.mqtt_version,
            qos=min(max(int(options.mqtt_qos), 0), 2), size=min(max(options.mqtt_size, HEADER.size), MAX_BYTES),
            rate=max(options.mqtt_rate, 0.0), backlog=min(max(options.mqtt_backlog, 1), 1000),
            timeout_s=max(options.mqtt_timeout, 0.1), prefix=options.mqtt_prefix.strip("/") or "locust",
            cafile=options.mqtt_cafile, insecure=options.mqtt_insecure)

    def login(self, number: int) -> tuple[str, str]:
        """%i stands for the number of the client."""
        return self.username.replace("%i", str(number)), self.password.replace("%i", str(number))

    def tls_context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.cafile or None)
        except OSError as e:
            raise OptionError(f"--cafile {self.cafile}: {e.strerror or e}") from None
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def add_arguments(parser: Any) -> None:
    """The names behind the arguments begin with mqtt_: locust has many of its own."""
    add = parser.add_argument
    add("--username", dest="mqtt_username", default="", env_var="MOSQ_LOAD_USERNAME", help="%%i: the client's number")
    add("--password", dest="mqtt_password", default="", env_var="MOSQ_LOAD_PASSWORD", is_secret=True,
        help="%%i: the client's number; better given as MOSQ_LOAD_PASSWORD, as everybody here can read a command line")
    add("--mqtt", dest="mqtt_version", default="3.1.1", choices=["3.1.1", "5"], help="version of the protocol")
    add("--qos", dest="mqtt_qos", default="1", choices=["0", "1", "2"], help="of the messages (offline: at least 1)")
    add("--size", dest="mqtt_size", type=int, default=64, help=f"bytes of a payload, {HEADER.size} at least")
    add("--rate", dest="mqtt_rate", type=float, default=1.0,
        help="messages a second of each user (commands: of each worker; storm: connections); 0: as fast as it goes")
    add("--backlog", dest="mqtt_backlog", type=int, default=5, help="messages that wait for an offline device")
    add("--timeout", dest="mqtt_timeout", type=float, default=10.0, help="seconds until what did not come has failed")
    add("--prefix", dest="mqtt_prefix", default="locust", help="of topics and client ids")
    add("--cafile", dest="mqtt_cafile", default="", help="whom to trust with mqtts:// and wss://")
    add("--insecure", dest="mqtt_insecure", action="store_true", include_in_web_ui=False, help="trust anybody")
    add("--result", dest="mqtt_result", default="", include_in_web_ui=False, help="write locust.json to this file")
