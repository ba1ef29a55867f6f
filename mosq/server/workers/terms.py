"""The part of each worker in a configuration. Opens no file."""

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
