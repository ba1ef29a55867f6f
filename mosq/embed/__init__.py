"""The embedding API: a broker inside a program, as `mosq` offers it. Uses the engine; knows nothing of the data
plane."""

from mosq.config.errors import ConfigError
from mosq.embed.broker import Broker
from mosq.embed.errors import (
    BrokerError,
    BrokerStopped,
    Disconnected,
    PublishError,
    ReasonError,
    SubscribeError,
    SubscriptionClosed,
)
from mosq.embed.message import Message, Properties
from mosq.embed.subscription import Subscription

__all__ = ["Broker", "BrokerError", "BrokerStopped", "ConfigError", "Disconnected", "Message", "Properties",
           "PublishError", "ReasonError", "SubscribeError", "Subscription", "SubscriptionClosed"]
