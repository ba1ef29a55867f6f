"""The part of each worker in a configuration. Opens no file."""

from copy import copy

from mosq.config.plugin import NATIVE, PYTHON, all_plugins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.config.bridge import Bridge
    from mosq.config.model import Config

DIVIDED = ("memory_limit", "login_memory", "queue_memory")      # 0: no limit


def of_worker(config: "Config", number: int, key: bytes) -> "Config":
    """Return the same configuration as that of the worker `number`, from 1: it has its part of the limits that are
    divided, and its bridges. The configuration itself changes; `whole` is as before. `key`: names the worker of a
    client id."""
    config.whole = copy(config)
    config.worker, config.pid_file = number, None
    if config.bridges:
        config.bridges_elsewhere, config.bridges = bridges_of(config, number, key)
    for name in DIVIDED:
        value = getattr(config, name)
        if value > 0:
            setattr(config, name, max(1, value // config.cluster_local))
    return config


def bridges_of(config: "Config", number: int, key: bytes) -> "tuple[int, list[Bridge]]":
    """Return how many bridges belong to other workers, and those of this one. A bridge belongs to the worker of its
    local client id, because its session does, and because no client may have that id beside it."""
    from socket import gethostname

    from mosq.engine import worker_place

    host = gethostname()
    ids = [bridge.local_id(host).encode("utf-8", "surrogateescape") for bridge in config.bridges]
    own = [bridge for bridge, local_id in zip(config.bridges, ids, strict=True)
           if worker_place(key, local_id, config.cluster_local) == number - 1]
    return len(config.bridges) - len(own), own


def not_shared(config: "Config") -> list[str]:
    """Return the warnings about what each worker still has for itself."""
    plugins = [plugin.path for plugin in all_plugins(config) if plugin.kind in (PYTHON, NATIVE)]
    if not plugins:
        return []
    return [f"Each worker loads its own instance of {', '.join(dict.fromkeys(plugins))}: it has a state of its own, "
            "and sees the clients of its worker."]
