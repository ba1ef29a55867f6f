"""Which control topics a configuration answers. Knows every module of this room; the others do not know this one.

Imported before the broker listens: imports next to nothing itself.
"""

from mosq.server.admin.control import ControlTopics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.config.model import Config
    from mosq.engine import Engine
    from mosq.server.admin.control import Bridges


def topics_of(config: "Config", engine: "Callable[[], Engine]", say: "Callable[[int, str], None]",
              wake: "Callable[[], None]", bridges: "Bridges | None" = None) -> ControlTopics:
    """Who answers with this configuration. `engine` is asked for when there are requests; `bridges` tells a dict of
    each bridge, see docs/control.md."""
    topics = ControlTopics(say, wake)
    if config.enable_control_api:
        from mosq.server.admin import broker, inspect

        topics.add(broker.TOPIC, broker.commands(config, topics.names, say))
        topics.add(inspect.TOPIC, inspect.commands(engine, bridges, say), private=True)
    return topics
