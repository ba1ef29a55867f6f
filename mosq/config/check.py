"""Checks that need the whole configuration. Opens no file."""

from mosq.config.errors import ConfigError
from mosq.config.model import Config, Listener
from mosq.config.plugin import PERSIST_SQLITE, all_plugins, has_store, sqlite_place
from mosq.log_types import INFORMATION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosq.config.errors import Origin

OF_NODE = ("cluster_node", "cluster_name", "cluster_listener", "cluster_secret_file", "cluster_password_file",
           "cluster_capacity", "cluster_reference")
WORKER_LISTENERS_MAX = 64       # as in cext/broker/core/workers.pxd


def check(config: Config) -> None:
    """Raise ConfigError for the first error, in the order in which Mosquitto checks."""
    for bridge in config.bridges:
        bridge.check()
    _check_bridge_names(config)
    for listener in config.listeners:
        _check_tls(listener)
    for listener in config.listeners:
        _check_proxy(listener)
    if config.stream or config.stream_events:
        _check_streams(config)
    if config.node_name is not None:
        _check_node_name(config, config.node_name)
    if config.cluster is not None:
        from mosq.config.cluster import check_cluster  # imported here so that the start stays fast

        check_cluster(config)
    check_workers(config)


def check_workers(config: Config) -> None:
    """Raise ConfigError for the first option whose meaning with several workers is not built yet."""
    found = next(_not_with_workers(config), None) if config.cluster_local > 1 else None
    if found is not None:
        what, origin = found
        raise ConfigError(f"{what} cannot be used with `cluster_local {config.cluster_local}` yet. Expected "
                          "`cluster_local 1`, or a configuration without it.", origin)


def _not_with_workers(config: Config) -> "Iterator[tuple[str, Origin | None]]":
    for plugin in all_plugins(config):
        if plugin.kind == PERSIST_SQLITE:       # one database would be the state of several workers
            yield f"The plugin '{plugin.path}'", plugin.origin
    if len(config.listeners) > WORKER_LISTENERS_MAX:
        yield f"More than {WORKER_LISTENERS_MAX} listeners", None


def _check_node_name(config: Config, name: str) -> None:
    if not name.isascii() or not name.replace("_", "a").replace("-", "a").replace(".", "a").isalnum():
        raise ConfigError(f"Invalid 'node_name' value ({name[:80]}). Expected 1 to 64 letters, digits, '_', '-', '.'.",
                          config.origins.get("node_name"))


def _check_streams(config: Config) -> None:
    if has_store(config):
        return
    name = "stream" if config.stream else "stream_events"
    wanted = "a durability other than none" if config.durability == "none" else "`persistence true`"
    raise ConfigError(f"'{name}' needs a store, because messages of a stream are acknowledged when they are written. "
                      f"Expected {wanted} as well, and a persistence_location.", config.origins.get(name))


def _check_bridge_names(config: Config) -> None:
    if len(config.bridges) < 2:
        return
    import socket

    hostname = socket.gethostname()
    seen: dict[str, str] = {}
    for bridge in config.bridges:
        local_id = bridge.local_id(hostname)
        if local_id in seen:
            raise ConfigError(f"Bridge local_clientid '{local_id}' is not unique. Try changing or setting the "
                              f"local_clientid value for one of the bridges. Expected an id that differs from that of "
                              f"bridge '{seen[local_id]}'.", bridge.origins.get("local_clientid", bridge.origin))
        seen[local_id] = bridge.name


def _at(listener: Listener, *names: str) -> "Origin | None":
    return next((listener.origins[name] for name in names if name in listener.origins), listener.origin)


def _check_tls(listener: Listener) -> None:
    if (listener.certfile is None) != (listener.keyfile is None):
        raise ConfigError("Both certfile and keyfile must be provided to enable a TLS listener. Expected both or none "
                          f"on the listener {listener.where}.", _at(listener, "certfile", "keyfile"))
    for name in ("cafile", "capath"):
        if getattr(listener, name) is not None and listener.certfile is None:
            raise ConfigError(f"{name} specified without certfile and keyfile. Expected all three, or none, on the "
                              f"listener {listener.where}.", _at(listener, name))


def _check_proxy(listener: Listener) -> None:
    if listener.enable_proxy_protocol != 2:
        return
    if listener.use_subject_as_username:
        raise ConfigError("use_subject_as_username cannot be used with `enable_proxy_protocol 2`. Expected "
                          "use_identity_as_username.", _at(listener, "use_subject_as_username"))
    if listener.certfile is not None:
        raise ConfigError("certfile and keyfile cannot be used with `enable_proxy_protocol 2`. Expected the proxy to "
                          "end TLS.", _at(listener, "certfile"))


def _warn_of_duplicates(config: Config) -> None:
    seen: dict[tuple[int, str | None, str | None, str], Listener] = {}
    for listener in config.listeners:
        if listener.port == 0 and listener.path is None:        # any free port
            continue
        key = (listener.port, listener.host, listener.path, listener.socket_domain)
        if key in seen:
            config.warnings.append(f"The listener {listener.where} ({listener.origin}) is configured twice, first at "
                                   f"{seen[key].origin}: an address can be opened only once, so the broker cannot "
                                   "start.")
        seen[key] = listener


def add_warnings(config: Config) -> None:
    """Append the warnings about options that do not have the effect that the user may expect."""
    for name in OF_NODE if config.cluster is None else ():
        if name in config.origins:
            config.warnings.append(f"'{name}' ({config.origins[name]}) has no effect without `cluster redis://HOST`.")
    _warn_of_duplicates(config)
    for plugin in all_plugins(config):
        if plugin.kind == PERSIST_SQLITE and sqlite_place(config, plugin) is None:      # Mosquitto's wording
            config.warnings.append("Sqlite persistence plugin has no plugin_opt_db_file defined. The plugin will not "
                                   "be activated.")
    for bridge in config.bridges:
        config.notices += [(INFORMATION, f"Duplicate bridge topic '{pattern}', skipping")
                           for pattern in bridge.duplicates]
        if bridge.bridge_insecure:
            config.warnings.append(f"Bridge '{bridge.name}' using insecure mode.")      # Mosquitto's wording
        if (bridge.bridge_certfile or bridge.bridge_keyfile) and not bridge.tls:
            config.warnings.append(f"The bridge '{bridge.name}' ({bridge.origin}) connects without TLS, although it "
                                   "has a certificate: TLS is turned on by bridge_cafile, bridge_capath or "
                                   "bridge_tls_use_os_certs.")
    if len(config.bridges) > 1:
        from mosq.config.rings import may_go_round

        config.warnings += may_go_round(config.bridges)
    for listener in config.listeners:
        if listener.require_certificate and listener.certfile and not listener.cafile and not listener.capath:
            origin = listener.origins["require_certificate"]
            config.warnings.append(f"'require_certificate' without cafile or capath ({origin}): "
                                   f"no client can connect to the listener {listener.where}, because no authority is "
                                   "trusted.")
        if listener.tls_keyform == "engine":
            config.warnings.append(f"'tls_keyform engine' ({listener.origins['tls_keyform']}) has no effect: OpenSSL "
                                   "no longer supports engines; the key is read from its file.")
        if not accepts_clients(config, listener):
            config.warnings.append(
                f"No client can connect to the listener {listener.where}: `allow_anonymous` is false there (the "
                "default with a listener), and there is no password_file, plugin or certificate from "
                "which user names are taken. "
                "Write `allow_anonymous true` to accept clients without a password.")


def accepts_clients(config: Config, listener: Listener) -> bool:
    """Return whether any client can log in to this listener."""
    return bool(config.allows_anonymous(listener) or config.security_of(listener, "password_file")
                or config.plugins_of(listener) or listener.use_identity_as_username
                or listener.use_subject_as_username or listener.psk_hint)
