"""The plugin's own fixtures, named here so that they are there whether or not the package is installed."""

from mosq.pytest_plugin import mosq_broker, mosq_broker_factory

__all__ = ["mosq_broker", "mosq_broker_factory"]
