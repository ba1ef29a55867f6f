"""Selects the control topics that a configuration answers. Imports every module of this package; they do not import
this one.

Imported before the broker listens, so it imports almost nothing.
"""

from mosq.server.admin.control import ControlTopics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.config.model import Config
    from mosq.engine import Engine
    from mosq.server.admin.control import BridgeStates
    from mosq.server.admin.hot import Hot


def topics_of(config: "Config", engine: "Callable[[], Engine]", report: "Callable[[int, str], None]",
              wake: "Callable[[], None]", bridges: "BridgeStates | None" = None,
              hot: "Callable[[], Hot] | None" = None,
              process: "Callable[[], dict[str, Any]] | None" = None) -> ControlTopics:
    """Return the control topics of this configuration. `engine` is called when there are requests. `bridges` returns a
    dict for each bridge, see docs/control.md. `hot` returns what others that ask the same share. `process`: of several
    workers, the age, processor time and memory of all."""
    topics = ControlTopics(report, wake)
    if config.enable_control_api:
        from mosq.server.admin import broker, inspect, traces

        topics.add(broker.TOPIC, broker.commands(config, topics.names, report))
        shared = None if hot is None else hot()
        topics.add(inspect.TOPIC, inspect.commands(engine, bridges, report, shared, process), private=True)
        topics.traces = traces.Traces(engine)
        topics.add(traces.TOPIC, traces.commands(topics.traces, report), private=True)
    return topics
