"""Import the plugin's own fixtures by name, so that they exist whether or not the package is installed."""

from mosq.pytest_plugin import mosq_broker, mosq_broker_factory

__all__ = ["mosq_broker", "mosq_broker_factory"]
