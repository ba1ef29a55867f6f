"""Check the options of `format("mqtt")` for reading and writing.

Secrets stay in this module: no text that is made of these options contains them.
"""

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mosq.pipeline import MosqPipelineError

if TYPE_CHECKING:
    from collections.abc import Mapping

BOTH = (
    "broker", "version", "clientId", "username", "password", "passwordFile", "caFile", "certFile", "keyFile",
    "tlsInsecure", "keepalive", "connectTimeout",
)
OF_JOURNAL = ("failOnDataLoss", "maxRecordsPerTrigger", "maxBytesPerTrigger", "maxRecordsPerPartition")
OF_READ = (
    "topics", "lanes", "qos", "spool", "sessionExpiry", "receiveMaximum", "keyProperty", "drainTime", *OF_JOURNAL,
)
# the last two are Spark's
OF_WRITE = ("topic", "qos", "retain", "ackTimeout", "path", "checkpointLocation")
VERSIONS = {"3.1.1": 4, "5": 5}
PORTS = {"mqtt": 1883, "mqtts": 8883}
UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
NEVER = 0xFFFFFFFF


def _wrong(name: str, wanted: str, text: str | None = None) -> MosqPipelineError:
    got = "" if text is None else f" is {text!r}"
    return MosqPipelineError(f'format("mqtt"): option {name}{got}: expected {wanted}')


class Given:
    """Hold options by name, regardless of case."""

    def __init__(self, given: "Mapping[str, str]", known: tuple[str, ...]) -> None:
        names = {name.lower(): name for name in known}
        self._given = {name.lower(): value for name, value in given.items()}
        for name in self._given:
            if name not in names:
                raise MosqPipelineError(f'format("mqtt") has no option {name} here; expected one of {", ".join(known)}')

    def text(self, name: str, default: str | None = None) -> str:
        text = self._given.get(name.lower(), default)
        if text is None:
            raise MosqPipelineError(f'format("mqtt") needs the option {name}: see docs/pipeline-source.md')
        return text

    def has(self, name: str) -> bool:
        return name.lower() in self._given

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name, str(default)).lower()
        if text not in ("true", "false"):
            raise _wrong(name, "true or false", text)
        return text == "true"

    def count(self, name: str, default: int, least: int, most: int) -> int:
        text = self.text(name, str(default))
        if not re.fullmatch(r"\d{1,12}", text) or not least <= int(text) <= most:
            raise _wrong(name, f"a number from {least} to {most}", text)
        return int(text)

    def seconds(self, name: str, default: str) -> float:
        text = self.text(name, default).strip().lower()
        found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s*([smhd]?)", text)
        if not found:
            raise _wrong(name, "seconds, or a number followed by s, m, h or d", text)
        return float(found[1]) * UNITS_S[found[2]]


class Access:
    """Hold the address of a broker and the credentials for it."""

    def __init__(self, given: Given) -> None:
        text = given.text("broker")
        if "@" in text:
            raise _wrong("broker", "no user in the URL, because logs would show it: set username and passwordFile")
        try:
            url = urlsplit(text if "://" in text else f"mqtt://{text}")
            host, port = url.hostname, url.port
        except ValueError:
            host, port, url = None, None, urlsplit("")
        if not host or url.scheme not in PORTS or url.path not in ("", "/"):
            raise _wrong("broker", "mqtt://HOST[:PORT] or mqtts://HOST[:PORT]", text)
        self.host = host
        self.port = port or PORTS[url.scheme]
        self.tls = url.scheme == "mqtts"
        version = given.text("version", "5")
        if version not in VERSIONS:
            raise _wrong("version", "5 or 3.1.1", version)
        self.version = VERSIONS[version]
        self.client_id = given.text("clientId", "")
        if not re.fullmatch(r"[A-Za-z0-9_.-]{0,64}", self.client_id):
            raise _wrong("clientId", "up to 64 letters, digits, '-', '_', '.'", self.client_id)
        self.username = given.text("username", "") or None
        self._password = given.text("password", "") or None
        self._password_file = given.text("passwordFile", "") or None
        if self._password and self._password_file:
            raise _wrong("passwordFile", "this option or password, not both")
        self.ca_file = given.text("caFile", "") or None
        self.cert_file = given.text("certFile", "") or None
        self.key_file = given.text("keyFile", "") or None
        self.tls_insecure = given.flag("tlsInsecure", False)
        if not self.tls and (self.ca_file or self.cert_file or self.key_file):
            raise _wrong("broker", "mqtts://, because caFile, certFile or keyFile is set", text)
        self.keepalive_s = given.count("keepalive", 60, 5, 65535)
        self.connect_timeout_s = given.seconds("connectTimeout", "30s")

    def __str__(self) -> str:
        return f"{'mqtts' if self.tls else 'mqtt'}://{self.host}:{self.port}"

    def password(self) -> str | None:
        if self._password_file is None:
            return self._password
        try:
            return Path(self._password_file).read_text().rstrip("\n")
        except OSError as error:
            raise MosqPipelineError(f"the password cannot be read: {error}; see option passwordFile") from error


class ReadOptions:
    """Hold the options for reading. Raises MosqPipelineError for the first wrong one."""

    def __init__(self, options: "Mapping[str, str]") -> None:
        given = Given(options, BOTH + OF_READ)
        self.access = Access(given)
        self.filters = [each.strip() for each in given.text("topics").split(",") if each.strip()]
        if not self.filters:
            raise _wrong("topics", "topic filters, separated by commas")
        self.lanes = given.count("lanes", 1, 1, 64)
        if self.lanes > 1 and any(each.startswith("$share/") for each in self.filters):
            raise _wrong("topics", "no $share/ with several lanes: lanes always share a subscription")
        self.qos = given.count("qos", 1, 0, 1)
        self.spool = Path(given.text("spool").removeprefix("file://").removeprefix("file:"))
        never = given.text("sessionExpiry", "7d") == "never"
        self.session_expiry_s = NEVER if never else int(given.seconds("sessionExpiry", "7d"))
        if not self.session_expiry_s:
            raise _wrong("sessionExpiry", "more than 0: without a session the broker queues nothing")
        self.receive_maximum = given.count("receiveMaximum", 1000, 1, 65535)
        self.key_property = given.text("keyProperty", "") or None
        self.drain_s = given.seconds("drainTime", "2s")
        self.fail_on_loss = given.flag("failOnDataLoss", True)
        # options of the journal's source, which reads the spool
        self.of_journal = {name: given.text(name) for name in OF_JOURNAL if given.has(name)}

    @property
    def name(self) -> str:
        """Return the name of these sessions and their spool.

        Reads with other filters or lanes need a name of their own, or each message would come twice.
        """
        what = repr((sorted(self.filters), self.lanes, self.qos, str(self.access), self.access.version))
        return hashlib.sha256(what.encode()).hexdigest()[:10]

    @property
    def window(self) -> int:
        """Return how many messages of a lane may be unacknowledged; in MQTT 3.1.1 a client cannot limit them."""
        return self.receive_maximum if self.access.version == 5 else 65_535

    def client_id(self, lane: int) -> str:
        return f"{self.access.client_id or 'mosq-pipeline'}-{self.name}-{lane}"

    def subscriptions(self) -> list[tuple[str, int]]:
        share = f"$share/{self.access.client_id or 'mosq-pipeline'}-{self.name}/" if self.lanes > 1 else ""
        return [(share + each, self.qos) for each in self.filters]


class WriteOptions:
    """Hold the options for writing. Raises MosqPipelineError for the first wrong one."""

    def __init__(self, options: "Mapping[str, str]") -> None:
        given = Given(options, BOTH + OF_WRITE)
        self.access = Access(given)
        self.topic = given.text("topic", "") or None
        self.qos = given.count("qos", 1, 0, 2)
        self.retain = given.flag("retain", False)
        self.ack_timeout_s = given.seconds("ackTimeout", "60s")
