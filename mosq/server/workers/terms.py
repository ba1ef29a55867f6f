"""The part of each worker in a configuration, and the warnings about what it has for itself. Opens no file."""

from mosq.config.plugin import NATIVE, PYTHON, all_plugins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.config.model import Config

DIVIDED = ("memory_limit", "login_memory", "queue_memory")      # 0: no limit


def of_worker(config: "Config", number: int) -> "Config":
    """Return the same configuration as that of the worker `number`, from 1: it has its part of the limits that are
    divided. The configuration itself changes."""
    config.worker, config.pid_file = number, None
    for name in DIVIDED:
        value = getattr(config, name)
        if value > 0:
            setattr(config, name, max(1, value // config.cluster_local))
    return config


def not_shared(config: "Config") -> list[str]:
    """Return the warnings about what each worker still has for itself."""
    found = ["$SYS, `mosq ctl` and `mosq top` show the worker of the client that asks."]
    plugins = [plugin.path for plugin in all_plugins(config) if plugin.kind in (PYTHON, NATIVE)]
    if plugins:
        found.append(f"Each worker loads its own instance of {', '.join(dict.fromkeys(plugins))}: it has a state of "
                     "its own, and sees the clients of its worker.")
    return found
