"""Define the arguments of a load test: locust's `--host` and our own, which locust's page shows as well."""

from __future__ import annotations

import ssl
import urllib.parse
from dataclasses import dataclass
from typing import Any, Literal

from perf.load.ledger import HEADER

DEFAULT_HOST = "mqtt://127.0.0.1:1883"
# scheme: port, paho's transport, with TLS
SCHEMES: dict[str, tuple[int, Literal["tcp", "websockets"], bool]] = {
    "mqtt": (1883, "tcp", False), "mqtts": (8883, "tcp", True), "ws": (80, "websockets", False),
    "wss": (443, "websockets", True)}
MAX_BYTES = 16 << 20            # most bytes of one payload


class OptionError(ValueError):
    """State what is wrong with --host or --cafile."""


def without_login(url: str) -> str:
    """Return the URL for logs: everything before the last @ is removed, even if the URL is malformed."""
    before, at, rest = url.rpartition("@")
    scheme, there, _ = before.partition("://")
    return f"{scheme + there if scheme.isalpha() else ''}***@{rest}" if at else url


@dataclass(frozen=True)
class Target:
    """Hold the address of the broker."""

    url: str
    host: str
    port: int
    transport: Literal["tcp", "websockets"]
    tls: bool
    path: str

    @classmethod
    def of(cls, url: str | None) -> Target:
        """Parse a URL; None stands for DEFAULT_HOST. Raises OptionError."""
        url = url or DEFAULT_HOST
        if "@" in url:          # first, because other errors contain the address
            raise OptionError("the address of the broker contains a user name; use --username and --password")
        try:
            parts = urllib.parse.urlsplit(url)
            port = parts.port
        except ValueError as e:
            raise OptionError(f"{url!r} is not an address: {e}") from None
        if parts.scheme not in SCHEMES or not parts.hostname:
            raise OptionError(f"{url!r} is not the address of a broker; expected one such as {DEFAULT_HOST}, or "
                            + ", ".join(f"{scheme}://" for scheme in SCHEMES if scheme != "mqtt"))
        default, transport, tls = SCHEMES[parts.scheme]
        return cls(url, parts.hostname, port or default, transport, tls, parts.path or "/mqtt")


@dataclass(frozen=True)
class Settings:
    """Hold the settings of one test; values from the web page are limited to their range."""

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
        """Return user name and password; %i stands for the number of the client."""
        return self.username.replace("%i", str(number)), self.password.replace("%i", str(number))

    def tls_context(self) -> ssl.SSLContext:
        """Return a TLS context for clients. Raises OptionError if --cafile cannot be read."""
        try:
            context = ssl.create_default_context(cafile=self.cafile or None)
        except OSError as e:
            raise OptionError(f"--cafile {self.cafile}: {e.strerror or e}") from None
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def add_arguments(parser: Any) -> None:
    """Add the arguments. Their names in the code begin with mqtt_, because locust has many of its own."""
    add = parser.add_argument
    add("--username", dest="mqtt_username", default="", env_var="MOSQ_LOAD_USERNAME",
        help="user name; %%i stands for the client's number")
    add("--password", dest="mqtt_password", default="", env_var="MOSQ_LOAD_PASSWORD", is_secret=True,
        help="better set by MOSQ_LOAD_PASSWORD, because other users can read a command line; %%i: the client's number")
    add("--mqtt", dest="mqtt_version", default="3.1.1", choices=["3.1.1", "5"], help="version of MQTT")
    add("--qos", dest="mqtt_qos", default="1", choices=["0", "1", "2"], help="QoS of messages (offline: at least 1)")
    add("--size", dest="mqtt_size", type=int, default=64, help=f"bytes of a payload, {HEADER.size} at least")
    add("--rate", dest="mqtt_rate", type=float, default=1.0,
        help="messages a second of each user (commands: of each worker; storm: connections); 0: no limit")
    add("--backlog", dest="mqtt_backlog", type=int, default=5, help="messages that wait for an offline device")
    add("--timeout", dest="mqtt_timeout", type=float, default=10.0, help="seconds until a missing answer fails")
    add("--prefix", dest="mqtt_prefix", default="locust", help="prefix of topics and client ids")
    add("--cafile", dest="mqtt_cafile", default="", help="trusted CAs for mqtts:// and wss://")
    add("--insecure", dest="mqtt_insecure", action="store_true", include_in_web_ui=False, help="accept any certificate")
    add("--result", dest="mqtt_result", default="", include_in_web_ui=False, help="write locust.json to this file")
