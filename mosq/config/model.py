"""What a configuration file says, typed: `Config` and its `Listener`s. Defaults come from the table of options.

Plain classes, no `dataclasses`: those load `inspect`, 15 ms of the 100 ms that the broker has to be listening.
"""

from mosq.config.errors import Origin
from mosq.config.options import GLOBAL, LISTENER, LISTENER_OR_DEFAULT, OPTIONS, SECURITY
from mosq.config.values import Value

# name -> default, of the options that are in force; `log_dest` and the like hold what was written, see Config
_GLOBALS = {o.name: o.default for o in OPTIONS
            if o.absent is None and o.scope in (GLOBAL, SECURITY) and o.kind != "special"}
_LISTENERS = {o.name: o.default for o in OPTIONS if o.absent is None and o.scope in (LISTENER, LISTENER_OR_DEFAULT)
              and o.name not in ("listener", "port", "bind_address")}
SECURITY_NAMES = tuple(o.name for o in OPTIONS if o.absent is None and o.scope == SECURITY)


class Listener:
    """One `listener` with its options."""

    port: int                           # 0: a unix socket, or, for embedding, any free port
    host: str | None                    # None: every address
    path: str | None                    # of a unix socket
    origin: Origin | None               # None: made up, as in local only mode
    security: dict[str, Value]          # under per_listener_settings true: what was set for it

    bind_interface: str | None
    socket_domain: str                  # "", "ipv4" or "ipv6"
    protocol: str
    accept_protocol_versions: tuple[str, ...]
    listener_allow_anonymous: bool | None
    listener_auto_id_prefix: str | None
    max_connections: int
    max_qos: int
    max_topic_alias: int
    max_topic_alias_broker: int
    mount_point: str | None
    use_username_as_clientid: bool

    def __init__(self, port: int, host: str | None = None, path: str | None = None,
                 origin: Origin | None = None) -> None:
        for name, default in _LISTENERS.items():
            setattr(self, name, default)
        self.port, self.host, self.path, self.origin = port, host, path, origin
        self.security = {}
        self.protocol = "mqtt"

    def versions_mask(self) -> int:
        """A bit 1 << level for each protocol level that the listener takes."""
        mask = 0
        for version in self.accept_protocol_versions:
            mask |= 1 << int(version)
        return mask


class Config:
    """All global options that are in force, by name, and what belongs to them."""

    listeners: list[Listener]
    local_only: bool                    # no listener was configured: 127.0.0.1 and ::1, anonymous clients welcome
    origins: dict[str, Origin]          # where each global option was set last
    warnings: list[str]                 # one line each, for the log
    file: str | None                    # None: defaults

    per_listener_settings: bool
    user: str
    pid_file: str | None
    sys_interval: int
    allow_duplicate_messages: bool
    check_retain_source: bool
    connection_messages: bool
    clientid_prefixes: str | None
    upgrade_outgoing_qos: bool
    set_tcp_nodelay: bool
    memory_limit: int
    message_size_limit: int
    max_packet_size: int
    max_keepalive: int
    max_inflight_messages: int
    max_inflight_bytes: int
    max_queued_messages: int
    max_queued_bytes: int
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
    index: str
    letter_index: str                   # "", "27" or "off"
    hash_buckets: int
    child_hash_threshold: int           # 0: off
    match_cache: int                    # 0: off
    pool: str                           # "on" or "off"
    pool_grow: int
    pool_idle_max: int
    shared_strategy: tuple[str, ...]    # `STRATEGY` or `STRATEGY GROUP` each; the last for a group counts
    log_dest: tuple[str, ...]           # (): stderr
    log_type: tuple[str, ...]           # (): error, warning, notice, information
    log_facility: int                   # 0 to 7: local0 to local7; -1: daemon
    log_format: str                     # text or json
    log_timestamp: bool
    log_timestamp_format: str | None
    allow_anonymous: bool | None        # None: only in local only mode
    allow_zero_length_clientid: bool
    auto_id_prefix: str
    acl_file: str | None

    def __init__(self) -> None:
        for name, default in _GLOBALS.items():
            setattr(self, name, default)
        self.listeners, self.local_only, self.origins, self.warnings, self.file = [], False, {}, [], None

    def allows_anonymous(self, listener: Listener) -> bool:
        if listener.listener_allow_anonymous is not None:
            return listener.listener_allow_anonymous
        said = listener.security.get("allow_anonymous", None if self.per_listener_settings else self.allow_anonymous)
        return self.local_only if said is None else bool(said)

    def auto_id_prefix_of(self, listener: Listener) -> str:
        if listener.listener_auto_id_prefix is not None:
            return listener.listener_auto_id_prefix
        return str(listener.security.get("auto_id_prefix", self.auto_id_prefix))
