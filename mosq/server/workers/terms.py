"""The meaning of a configuration for workers: options that cannot be used with them yet, and limits of which each gets
a part. Opens no file."""

from mosq.config.errors import ConfigError
from mosq.config.plugin import ACL_FILE, PASSWORD_FILE, all_plugins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosq.config.errors import Origin
    from mosq.config.model import Config

LISTENERS_MAX = 64              # as WORKER_LISTENERS_MAX of cext/broker/core/workers.pxd
DIVIDED = ("memory_limit", "login_memory", "queue_memory")      # 0: no limit


def check_terms(config: "Config") -> None:
    """Raise ConfigError for the first option whose meaning with workers is not built yet."""
    found = next(_not_built(config), None)
    if found is not None:
        what, origin = found
        raise ConfigError(f"{what} cannot be used with `cluster_local {config.cluster_local}` yet. Expected "
                          "`cluster_local 1`, or a configuration without it.", origin)


def _not_built(config: "Config") -> "Iterator[tuple[str, Origin | None]]":
    origins = config.origins
    if config.stream or config.stream_events:
        name = "stream" if config.stream else "stream_events"
        yield f"'{name}'", origins.get(name)
    for bridge in config.bridges:
        yield f"The bridge '{bridge.name}'", bridge.origin
    for plugin in all_plugins(config):
        if plugin.kind in (ACL_FILE, PASSWORD_FILE):    # they only read a file
            continue
        yield f"The plugin '{plugin.path}'", plugin.origin
    for listener in config.listeners:
        if listener.protocol == "http_api":
            yield f"The listener {listener.where} with `protocol http_api`", listener.origin
    if len(config.listeners) > LISTENERS_MAX:
        yield f"More than {LISTENERS_MAX} listeners", None


def of_worker(config: "Config", number: int) -> "Config":
    """Return the same configuration as that of the worker `number`, from 1: it has its part of the limits that are
    divided. The configuration itself changes."""
    config.worker, config.pid_file = number, None
    for name in DIVIDED:
        value = getattr(config, name)
        if value > 0:
            setattr(config, name, max(1, value // config.cluster_local))
    return config


def not_shared() -> list[str]:
    """Return the warnings about what each worker still has for itself."""
    return ["$SYS, `mosq ctl` and `mosq top` show the worker of the client that asks."]
