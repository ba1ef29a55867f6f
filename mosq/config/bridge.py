"""A bridge as its `connection` block describes it, typed and checked. Knows the options of the block; connects nothing.

Attributes have the names of the options. An option without a line has the default of the option table.
"""

from mosq.config.errors import ConfigError, Origin
from mosq.config.options.option import UINT16_MAX, Option
from mosq.config.options.rows_bridge import BRIDGES
from mosq.config.options.values import SHOWN_MAX, Value, integer, words_before_comment

DEFAULT_PORT = 1883
DIRECTIONS = ("out", "in", "both")
RESTART_S, RESTART_CAP_S, CAP_MAX_S = 3600, 30, 7200
_DEFAULTS = {o.name: o.default for o in BRIDGES if o.kind != "special"}
_X509 = ("bridge_cafile", "bridge_capath", "bridge_certfile", "bridge_keyfile")
_PSK = ("bridge_identity", "bridge_psk")


class BridgeTopic:
    """One `topic` line of a bridge."""

    __slots__ = ("pattern", "direction", "qos", "local_prefix", "remote_prefix", "origin")

    def __init__(self, pattern: str | None, direction: str, qos: int, local_prefix: str, remote_prefix: str,
                 origin: Origin) -> None:
        self.pattern = pattern          # None: the prefixes are whole topics that replace each other
        self.direction = direction      # one of DIRECTIONS
        self.qos = qos
        self.local_prefix, self.remote_prefix = local_prefix, remote_prefix
        self.origin = origin

    def key(self) -> tuple[object, ...]:
        """Return all settings of the line, to find duplicates and changes."""
        return self.pattern, self.direction, self.qos, self.local_prefix, self.remote_prefix

    @property
    def local(self) -> str:
        """The filter in this broker."""
        return self.local_prefix + (self.pattern or "")

    @property
    def remote(self) -> str:
        """The filter in the other broker."""
        return self.remote_prefix + (self.pattern or "")


class Bridge:
    """One `connection` block."""

    name: str
    origin: Origin
    origins: dict[str, Origin]
    addresses: list[tuple[str, int]]
    topics: list[BridgeTopic]
    duplicates: list[str]               # patterns of `topic` lines that repeat an earlier line
    restart_base_s: int                 # shortest pause between attempts, in seconds
    restart_cap_s: int                  # longest pause, in seconds; equal to the shortest: constant pause
    restart_stable_s: int               # a connection of at least this length resets the pause; 0: any length
    tcp_keepalive_s: tuple[int, int, int] | None    # idle, interval, and a count

    bridge_protocol_version: str
    remote_clientid: str | None
    remote_username: str | None
    remote_password: str | None
    local_clientid: str | None
    local_username: str | None
    local_password: str | None
    cleansession: bool
    local_cleansession: bool | None
    start_type: str
    idle_timeout: int
    threshold: int
    keepalive_interval: int
    round_robin: bool
    try_private: bool
    notifications: bool
    notifications_local_only: bool
    notification_topic: str | None
    bridge_attempt_unsubscribe: bool
    bridge_bind_address: str | None
    bridge_max_packet_size: int
    bridge_max_topic_alias: int
    bridge_receive_maximum: int         # 0: max_inflight_messages
    bridge_session_expiry_interval: int
    bridge_outgoing_retain: bool
    bridge_loop_guard: bool
    bridge_reload_type: str
    bridge_tcp_user_timeout: int
    bridge_cafile: str | None
    bridge_capath: str | None
    bridge_certfile: str | None
    bridge_keyfile: str | None
    bridge_tls_version: str | None
    bridge_ciphers: str | None
    bridge_alpn: str | None
    bridge_tls_use_os_certs: bool
    bridge_insecure: bool
    bridge_require_ocsp: bool
    bridge_identity: str | None
    bridge_psk: str | None

    def __init__(self, name: str, origin: Origin) -> None:
        for option, default in _DEFAULTS.items():
            setattr(self, option, default)
        self.name, self.origin, self.origins = name, origin, {}
        self.addresses, self.topics, self.duplicates = [], [], []
        self._topic_keys: set[tuple[object, ...]] = set()
        self.restart_base_s, self.restart_cap_s, self.restart_stable_s = 5, RESTART_CAP_S, 0
        self.tcp_keepalive_s = None

    def take(self, option: Option, keyword: str, value: Value, origin: Origin) -> None:
        """Apply a line of the block. Raises ValueError."""
        if option.name in _X509 and any(getattr(self, name) for name in _PSK):
            raise ValueError(f"'{keyword}': Cannot use both certificate and psk encryption in a single bridge. "
                             "Expected one of them.")
        if option.name in _PSK and any(getattr(self, name) for name in _X509):
            raise ValueError(f"'{keyword}': Cannot use both certificate and identity encryption in a single bridge. "
                             "Expected one of them.")
        if option.name == "address":
            self._take_addresses(str(value))
        elif option.name == "topic":
            self._take_topic(str(value), origin)
        elif option.name == "restart_timeout":
            self._take_restart(str(value))
        elif option.name == "bridge_tcp_keepalive":
            self._take_tcp_keepalive(str(value))
        else:
            if option.once and option.name in self.origins:
                raise ValueError(f"Duplicate '{option.label or keyword}' value in configuration. Expected it once in a "
                                 f"bridge; the first is at {self.origins[option.name]}.")
            setattr(self, option.name, value)
        self.origins[option.name] = origin

    def _take_addresses(self, text: str) -> None:
        if self.addresses:
            raise ValueError("Invalid bridge configuration, 'address' only allowed once. Expected all of them on one "
                             "line.")
        addresses = []
        for word in words_before_comment(text):
            host, colon, port_word = word.rpartition(":")
            port = integer(port_word) if colon else DEFAULT_PORT
            if port is None or not 1 <= port <= UINT16_MAX:
                raise ValueError(f"Invalid bridge port value ({port_word[:SHOWN_MAX]}). Expected HOST or HOST:PORT "
                                 "with a port from 1 to 65535; an IPv6 address needs its port.")
            addresses.append((host if colon else word, port))
        if not addresses:
            raise ValueError("Empty address value in configuration. Expected HOST or HOST:PORT, one or several.")
        self.addresses = addresses

    def _take_topic(self, text: str, origin: Origin) -> None:
        topic = bridge_topic(text, origin)
        if topic.key() not in self._topic_keys:         # Mosquitto ignores a second equal line too
            self._topic_keys.add(topic.key())
            self.topics.append(topic)
        else:
            self.duplicates.append(topic.pattern or "")

    def _take_restart(self, text: str) -> None:
        numbers = [_whole("restart_timeout", word) for word in words_before_comment(text)[:3]]
        if not numbers:
            raise ValueError("Empty 'restart_timeout' value in configuration. Expected SECONDS, or BASE CAP [STABLE].")
        base_s = cap_s = min(max(numbers[0], 1), RESTART_S)
        if len(numbers) > 1:
            cap_s = min(numbers[1], CAP_MAX_S)
            if cap_s < base_s:
                raise ValueError("backoff cap is lower than the base in restart_timeout. Expected BASE CAP with a "
                                 f"larger CAP, up to {CAP_MAX_S} seconds.")
        stable_s = numbers[2] if len(numbers) > 2 else 0
        if stable_s < 0:
            raise ValueError("stable connection period cannot be negative. Expected BASE CAP STABLE in seconds.")
        self.restart_base_s, self.restart_cap_s, self.restart_stable_s = base_s, cap_s, stable_s

    def _take_tcp_keepalive(self, text: str) -> None:
        numbers = []
        words = words_before_comment(text)
        for i, (label, what) in enumerate((("idle", "idle"), ("interval", "interval"), ("counter", "counter"))):
            label = f"bridge_tcp_keepalive_{label}"
            if i >= len(words):
                raise ValueError(f"Empty '{label}' value in configuration. Expected IDLE INTERVAL COUNT.")
            number = _whole(label, words[i])
            if number <= 0:
                raise ValueError(f"invalid TCP keepalive {what} value. Expected a number above 0.")
            numbers.append(number)
        self.tcp_keepalive_s = (numbers[0], numbers[1], numbers[2])

    # ---- checks of the whole block

    def check(self) -> None:
        """Check the options against each other. Raises ConfigError."""
        if not self.addresses:
            raise ConfigError("Invalid bridge configuration: no remote addresses defined. Expected a line `address "
                              f"HOST:PORT` for the bridge '{self.name}'.", self.origin)
        if not self.topics:
            raise ConfigError(f"Invalid bridge configuration: no topics defined. Expected a line `topic` for the "
                              f"bridge '{self.name}'.", self.origin)
        if self.bridge_psk and not self.bridge_identity:
            raise ConfigError("Invalid bridge configuration: missing bridge_identity. Expected it beside bridge_psk.",
                              self.origins["bridge_psk"])
        if self.bridge_identity and not self.bridge_psk:
            raise ConfigError("Invalid bridge configuration: missing bridge_psk. Expected it beside bridge_identity.",
                              self.origins["bridge_identity"])

    def remote_id(self, hostname: str) -> str:
        """Return the client id at the other broker."""
        return self.remote_clientid or f"{hostname}.{self.name}"

    def local_id(self, hostname: str) -> str:
        """Return the client id of the bridge's session in this broker."""
        return self.local_clientid or f"local.{self.remote_id(hostname)}"

    @property
    def tls(self) -> bool:
        """Return whether the bridge uses TLS with certificates."""
        return bool(self.bridge_cafile or self.bridge_capath or self.bridge_tls_use_os_certs)

    def key(self) -> tuple[object, ...]:
        """Return all settings of the bridge, to find out at a reload whether they changed."""
        return (*(getattr(self, name) for name in _DEFAULTS), self.name, tuple(self.addresses),
                tuple(topic.key() for topic in self.topics), self.restart_base_s, self.restart_cap_s,
                self.restart_stable_s, self.tcp_keepalive_s)


def bridge_topic(text: str, origin: Origin) -> BridgeTopic:
    """Parse `PATTERN [out|in|both [QOS [LOCAL-PREFIX [REMOTE-PREFIX]]]]`. A pattern in quotes may contain blanks. \"\"
    is an empty pattern or prefix. A word other than the pattern that begins with # starts a comment. Raises
    ValueError."""
    pattern, rest = _pattern(text)
    words = rest.split()
    direction, qos, prefixes = "out", 0, ["", ""]
    if words:
        direction = words[0].lower()
        if direction not in DIRECTIONS:
            raise ValueError(f"Invalid bridge topic direction '{words[0][:SHOWN_MAX]}'. Expected out, in or both.")
    if len(words) > 1 and not words[1].startswith("#"):
        number = integer(words[1])
        if number is None or not 0 <= number <= 2:
            raise ValueError(f"Invalid bridge QoS level '{words[1][:SHOWN_MAX]}'. Expected 0, 1 or 2.")
        qos = number
        for i, (word, side) in enumerate(zip(words[2:4], ("local", "remote"), strict=False)):
            if word.startswith("#"):
                break
            prefixes[i] = "" if word == '""' else word
            if "#" in word or "+" in word:
                raise ValueError(f"Invalid bridge topic {side} prefix '{word[:SHOWN_MAX]}'. Expected a topic without + "
                                 "and #.")
    if pattern is None and not all(prefixes):
        raise ValueError("Invalid bridge remapping. Expected, for an empty pattern, two whole topics: `topic \"\" "
                         "DIRECTION QOS LOCAL REMOTE`.")
    return BridgeTopic(pattern, direction, qos, prefixes[0], prefixes[1], origin)


def _pattern(text: str) -> tuple[str | None, str]:
    first = text.split(None, 1)
    if not first:
        raise ValueError("Empty 'topic' value in configuration. Expected PATTERN [out|in|both [QOS [LOCAL-PREFIX "
                         "[REMOTE-PREFIX]]]].")
    if first[0].startswith('"') and not first[0].startswith('""'):
        pattern, quote, rest = text[1:].partition('"')
        if not quote:
            shown = first[1] if len(first) > 1 else text[1:]        # Mosquitto shows what follows the first word
            raise ValueError(f"Missing closing quote in topic value ({shown[:SHOWN_MAX]}). Expected \"PATTERN\".")
        return pattern, rest
    return (None if first[0] == '""' else first[0]), (first[1] if len(first) > 1 else "")


def _whole(label: str, word: str) -> int:
    number = integer(word)
    if number is None or abs(number) > 2**31 - 1:
        raise ValueError(f"'{label}' value not a number. Expected a whole number; got '{word[:SHOWN_MAX]}'.")
    return number
