"""The typed contents of a configuration file: `Config` and its `Listener`s. Defaults come from the option table.

These are plain classes: `dataclasses` would load `inspect`, 15 ms of the 30 ms in which the broker must be listening.
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
    """One `listener` with its options. The attribute `ciphers_tls1.3` is read with getattr."""

    port: int                           # 0: a unix socket, or, for embedding, any free port
    host: str | None                    # None: every address
    path: str | None                    # path of a Unix socket
    origin: Origin | None               # None: implied, as in local only mode
    origins: dict[str, Origin]          # the last line that set each option
    security: dict[str, Value]          # with per_listener_settings true: its security options
    plugins: list[Plugin]               # plugins of this listener; those of the broker come first

    bind_interface: str | None
    socket_domain: str                  # "", "ipv4" or "ipv6"
    protocol: str                       # "mqtt", "websockets" or "http_api"
    http_dir: str | None
    http_metrics: bool
    http_dashboard: bool
    accept_protocol_versions: tuple[str, ...]
    listener_allow_anonymous: bool | None
    listener_durability: str            # "": the broker's durability
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
    websockets_trusted_proxy: tuple[str, ...]   # networks or "unix"; (): none

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
    tls_compact_records: bool
    psk_hint: str | None

    def __init__(self, port: int, host: str | None = None, path: str | None = None,
                 origin: Origin | None = None) -> None:
        for name, default in _LISTENERS.items():
            setattr(self, name, default)
        self.port, self.host, self.path, self.origin = port, host, path, origin
        self.security, self.origins, self.plugins = {}, {}, []
        self.websockets_origin = self.websockets_trusted_proxy = ()

    @property
    def where(self) -> str:
        """The listener's name in log lines and errors."""
        return self.path or (f"{self.host}:{self.port}" if self.host else f"port {self.port}")

    @property
    def tls(self) -> bool:
        """Return whether the listener uses TLS, with a certificate or a PSK."""
        return self.certfile is not None or self.psk_hint is not None

    def versions_mask(self) -> int:
        """Return a bit 1 << level for each protocol level that the listener accepts."""
        mask = 0
        for version in self.accept_protocol_versions:
            mask |= 1 << int(version)
        return mask


class Config:
    """All global options by name, and the listeners, plugins and bridges. Options without effect in this version are
    included and cause a warning."""

    listeners: list[Listener]
    plugins: list[Plugin]               # plugins of every listener
    named_plugins: dict[str, Plugin]    # plugins of plugin_load; used by listeners with plugin_use
    bridges: list[Bridge]
    local_only: bool                    # no listener configured: 127.0.0.1 and ::1 for anonymous clients
    origins: dict[str, Origin]          # the last line that set each global option
    warnings: list[str]                 # one line each, for the log
    notices: list[tuple[int, str]]      # (type of line, text) of lines without "Warning:", in Mosquitto's words
    kept_by_plugin: bool                # a loaded native plugin keeps the broker's state
    without_store: str                  # why the broker runs without its store; "": it has one, or none is configured
    file: str | None                    # path of the file; None: defaults
    sources: list[tuple[str, Origin | None]]    # files and folders that were read, and the line that names each
    tls_keylog: str | None              # --tls-keylog of the command line
    worker: int                         # number of the worker with this configuration, from 1; 0: the broker is alone
    bridges_elsewhere: int              # bridges of other workers, which `bridges` does not have
    whole: "Config | None"              # that of all workers; None: this one is

    per_listener_settings: bool
    user: str
    pid_file: str | None
    cluster_local: int                  # number of workers; 1: one process
    cluster_watchdog: int
    cluster: str | None                 # address of Redis, perhaps with a password; None: no node of a cluster
    cluster_name: str
    cluster_node: str | None
    cluster_listener: str | None        # `PORT [ADDRESS]`; see cluster.py
    cluster_secret_file: str | None
    cluster_password_file: str | None   # its first line is the password of Redis
    cluster_capacity: int
    cluster_reference: str | None
    route_timeout: int
    link_memory: int
    sys_interval: int
    observe_messages: int
    allow_duplicate_messages: bool
    compat: bool
    takeover_will: str
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
    control_loopback: bool
    receive_maximum_policy: str
    log_connections_max: int            # 0: no limit
    login_memory: int                   # 0: no limit
    max_inbound_qos2_bytes: int         # 0: no limit
    max_output_bytes: int
    max_topic_levels: int
    connect_timeout: int
    tls_handshake_threads: int
    tls_handshakes_per_address: int     # 0: no limit
    turn_budget: int
    turn_interval: int                  # microseconds; -1: NODE_TURN_INTERVAL_US in a cluster, else 0
    auth_timeout: int
    auth_threads: int                   # 0: one per CPU core
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
    shared_strategy: tuple[str, ...]    # each `STRATEGY` or `STRATEGY GROUP`; the last for a group counts
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
    durability_topic: tuple[str, ...]   # each `LEVEL FILTER`; the first match counts
    durability_interval: int            # milliseconds
    stream: tuple[str, ...]             # each `NAME FILTER... OPTION VALUE...`; see streams.py
    stream_events: tuple[str, ...]      # `true OPTION VALUE...`; (): false
    node_name: str | None               # None: the host's name
    mosquitto_db: bool
    mosquitto_db_seconds: int
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
        self.sources, self.worker, self.bridges_elsewhere, self.whole = [], 0, 0, None
        self.without_store = ""
        self.kept_by_plugin = False
        self.local_only, self.file, self.tls_keylog = False, None, None

    def security_of(self, listener: Listener, name: str) -> Value | None:
        """Return the value of a security option for this listener's clients."""
        if not self.per_listener_settings:
            value: Value | None = getattr(self, name)
            return value
        return listener.security.get(name, _GLOBALS[name])

    def origin_of(self, listener: Listener, name: str) -> Origin | None:
        """Return the line that set the security option `name` for this listener."""
        return (listener if self.per_listener_settings else self).origins.get(name)

    def plugins_of(self, listener: Listener) -> list[Plugin]:
        """Return the plugins of a listener in the order in which they are called."""
        return [*self.plugins, *listener.plugins]

    def allows_anonymous(self, listener: Listener) -> bool:
        """Return whether the listener accepts clients without a user name."""
        if listener.listener_allow_anonymous is not None:
            return listener.listener_allow_anonymous
        value = self.security_of(listener, "allow_anonymous")
        return self.local_only if value is None else bool(value)

    def auto_id_prefix_of(self, listener: Listener) -> str:
        """Return the beginning of the client ids that this listener assigns."""
        if listener.listener_auto_id_prefix is not None:
            return listener.listener_auto_id_prefix
        return str(self.security_of(listener, "auto_id_prefix"))
