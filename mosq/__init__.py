"""mosq: an MQTT broker that replaces Mosquitto. Importing the package loads nothing else, so it starts fast. The
embedding API (`mosq.Broker` and the other names below) is loaded on first use."""

from mosq.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.embed import (
        Broker,
        BrokerError,
        BrokerStopped,
        ConfigError,
        Disconnected,
        Message,
        Properties,
        PublishError,
        ReasonError,
        SubscribeError,
        Subscription,
        SubscriptionClosed,
    )

__version__ = VERSION

__all__ = ["Broker", "BrokerError", "BrokerStopped", "ConfigError", "Disconnected", "Message", "Properties",
           "PublishError", "ReasonError", "SubscribeError", "Subscription", "SubscriptionClosed", "__version__"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'mosq' has no attribute {name!r}")
    try:
        from mosq.engine import load

        load()
        from mosq import embed
    except ImportError as error:
        from mosq.built import why_not_loaded

        line = why_not_loaded(error)
        if not line:
            raise
        raise ImportError(line, name=error.name, path=error.path) from None

    value: object = getattr(embed, name)
    globals()[name] = value
    return value
