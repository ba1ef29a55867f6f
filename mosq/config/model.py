"""What a configuration file says, typed: `Config` and its `Listener`s. Defaults come from the table of options.

Plain classes, no `dataclasses`: those load `inspect`, 15 ms of the 70 ms that the broker has to be listening.
"""

from mosq.config.bridge import Bridge
from mosq.config.errors import Origin
from mosq.config.options import GLOBAL, OF_LISTENERS, OPTIONS, SECURITY
from mosq.config.options.values import Value
from mosq.config.plugin import Plugin

_NO_VALUE = ("special", "anything")
_PLUGIN_LINES = ("plugin", "global_plugin")
# name -> default
_GLOBALS = {o.name: o.default for o in OPTIONS
            if o.scope in (GLOBAL, SECURITY) and o.kind not in _NO_VALUE and o.name not in _PLUGIN_LINES}
_LISTENERS = {o.name: o.default for o in OPTIONS
              if o.scope in OF_LISTENERS and o.kind not in _NO_VALUE and o.name not in ("port", "bind_address")}
SECURITY_NAMES = tuple(o.name for o in OPTIONS if o.scope == SECURITY)


class Listener:
    """One `listener` with its options. `ciphers_tls1.3` is an attribute too, for getattr."""

    port: int                           # 0: a unix socket, or, for embedding, any free port
    host: str | None                    # None: every address
    path: str | None                    # of a unix socket
    origin: Origin | None               # None: made up, as in local only mode
    origins: dict[str, Origin]          # where each option was set last
    security: dict[str, Value]          # under per_listener_settings true: what was set for it
    plugins: list[Plugin]               # its own, after those of the broker

    bind_interface: str | None
    socket_domain: str                  # "", "ipv4" or "ipv6"
    protocol: str                       # "mqtt", "websockets" or "http_api"
    http_dir: str | None
    accept_protocol_versions: tuple[str, ...]
    listener_allow_anonymous: bool | None
    listener_durability: str            # "": as for all
    listener_auto_id_prefix: str | None
    max_connections: int
    max_qos: int
    max_topic_alias: int
    max_topic_alias_broker: int
    mount_point: str | None
    use_username_as_clientid: bool
    enable_proxy_protocol: int          # 0: off
    proxy_protocol_v2_require_tls: bool
    websockets_origin: tuple[str, ...]  # (): any

    cafile: str | None
    capath: str | None
    certfile: str | None
    keyfile: str | None
    crlfile: str | None
    require_certificate: bool
    disable_client_cert_date_checks: bool
    use_identity_as_username: bool
    use_subject_as_username: bool
    ciphers: str | None
    tls_version: str | None             # as written; None: the lowest that is supported
    tls_engine: str | None
    tls_engine_kpass_sha1: str | None
    tls_keyform: str
    psk_hint: str | None

    def __init__(self, port: int, host: str | None = None, path: str | None = None,
                 origin: Origin | None = None) -> None:
        for name, default in _LISTENERS.items():
            setattr(self, name, default)
        self.port, self.host, self.path, self.origin = port, host, path, origin
        self.security, self.origins, self.plugins = {}, {}, []
        self.websockets_origin = ()

    @property
    def where(self) -> str:
        """For log lines and errors."""
        return self.path or (f"{self.host}:{self.port}" if self.host else f"port {self.port}")

    @property
    def tls(self) -> bool:
        """By certificate or by PSK."""
        return self.certfile is not None or self.psk_hint is not None

    def versions_mask(self) -> int:
        """A bit 1 << level for each protocol level that the listener takes."""
        mask = 0
        for version in self.accept_protocol_versions:
            mask |= 1 << int(version)
        return mask


class Config:
    """All global options by name, and what belongs to them. Options that have no effect in this version are there too
    and come with a warning."""

    listeners: list[Listener]
    plugins: list[Plugin]               # in force for every listener
    named_plugins: dict[str, Plugin]    # of plugin_load; in force where plugin_use names them
    bridges: list[Bridge]
    local_only: bool                    # no listener was configured: 127.0.0.1 and ::1, anonymous clients welcome
    origins: dict[str, Origin]          # where each global option was set last
    warnings: list[str]                 # one line each, for the log
    notices: list[str]                  # the same, of less weight: what is deprecated
    file: str | None                    # None: defaults
    tls_keylog: str | None              # --tls-keylog of the command line

    per_listener_settings: bool
    user: str
    pid_file: str | None
    sys_interval: int
    allow_duplicate_messages: bool
    check_retain_source: bool
    connection_messages: bool
    clientid_prefixes: str | None
    enable_control_api: bool
    upgrade_outgoing_qos: bool
    set_tcp_nodelay: bool
    memory_limit: int
    message_size_limit: int
    max_packet_size: int
    packet_buffer_size: int
    max_keepalive: int
    max_inflight_messages: int
    max_inflight_bytes: int
    max_queued_messages: int
    max_queued_bytes: int
    queue_memory: int
    queue_qos0_messages: bool
    global_max_clients: int
    global_max_connections: int
    retain_available: bool
    retain_expiry_interval: int         # minutes; 0: never
    persistent_client_expiration: int   # seconds; -1: never
    acl_refuse_subscribe: bool
    receive_maximum_policy: str
    max_output_bytes: int
    max_topic_levels: int
    connect_timeout: int
    turn_budget: int
    auth_timeout: int
    auth_threads: int                   # 0: as many as there are cores
    auth_cache_size: int
    auth_cache_seconds: int             # 0: off
    auth_backoff: bool
    index: str
    letter_index: str                   # "", "27" or "off"
    hash_buckets: int
    child_hash_threshold: int           # 0: off
    match_cache: int                    # 0: off
    pool: str                           # "on" or "off"
    pool_grow: int
    pool_idle_max: int
    queue_overflow: str                 # "drop_newest", "drop_oldest" or "last_value"
    shared_strategy: tuple[str, ...]    # `STRATEGY` or `STRATEGY GROUP` each; the last for a group counts
    log_dest: tuple[str, ...]           # "none", "stdout", "stderr", "syslog", "topic", "file PATH"; (): stderr
    log_type: tuple[str, ...]           # (): error, warning, notice, information
    log_facility: int                   # 0-7: local0-7; -1: daemon
    log_timestamp: bool
    log_timestamp_format: str | None
    log_format: str                     # "text" or "json"
    log_denied_per_second: int          # 0: none
    persistence: bool
    persistence_location: str | None
    persistence_file: str
    durability: str                     # "none", "async", "group" or "strict"
    durability_topic: tuple[str, ...]   # `LEVEL FILTER` each; the first that matches counts
    durability_interval: int            # milliseconds
    stream: tuple[str, ...]             # `NAME FILTER... OPTION VALUE...` each; see streams.py
    stream_events: tuple[str, ...]      # `true OPTION VALUE...`; (): false
    autosave_interval: int
    autosave_on_changes: bool
    allow_anonymous: bool | None        # None: only in local only mode
    allow_zero_length_clientid: bool
    auto_id_prefix: str
    acl_file: str | None
    password_file: str | None
    psk_file: str | None

    def __init__(self) -> None:
        for name, default in _GLOBALS.items():
            setattr(self, name, default)
        self.listeners, self.plugins, self.named_plugins, self.bridges = [], [], {}, []
        self.origins, self.warnings, self.notices = {}, [], []
        self.local_only, self.file, self.tls_keylog = False, None, None

    def security_of(self, listener: Listener, name: str) -> Value | None:
        """A security option where this listener's clients are concerned."""
        if not self.per_listener_settings:
            value: Value | None = getattr(self, name)
            return value
        return listener.security.get(name, _GLOBALS[name])

    def origin_of(self, listener: Listener, name: str) -> Origin | None:
        """Where that was set."""
        return (listener if self.per_listener_settings else self).origins.get(name)

    def plugins_of(self, listener: Listener) -> list[Plugin]:
        """In the order in which they are asked."""
        return [*self.plugins, *listener.plugins]

    def allows_anonymous(self, listener: Listener) -> bool:
        if listener.listener_allow_anonymous is not None:
            return listener.listener_allow_anonymous
        said = self.security_of(listener, "allow_anonymous")
        return self.local_only if said is None else bool(said)

    def auto_id_prefix_of(self, listener: Listener) -> str:
        if listener.listener_auto_id_prefix is not None:
            return listener.listener_auto_id_prefix
        return str(self.security_of(listener, "auto_id_prefix"))
