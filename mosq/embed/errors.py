"""The errors of the embedding API. In addition, an error in a configuration is a `ConfigError`, a port that is not
available an `OSError`, a time-out a `TimeoutError`, and a value that no packet can carry a `ValueError`."""

from mosq.reason_codes import WORDS


class BrokerError(Exception):
    """The base class of the errors that a running broker causes."""


class BrokerStopped(BrokerError):
    """The broker is not running: not started or already stopped."""


class SubscriptionClosed(BrokerError):
    """No more messages will come: the subscription was closed, or the broker stopped. Iteration simply ends."""


class ReasonError(BrokerError):
    """The broker refused; `reason` is the code of MQTT 5 [v5 2.4]."""

    def __init__(self, what: str, reason: int) -> None:
        super().__init__(f"{what}: {WORDS.get(reason, 'unknown reason')} (0x{reason:02X})")
        self.reason = reason


class PublishError(ReasonError):
    """The broker refused a message."""


class SubscribeError(ReasonError):
    """The broker refused a filter."""


class Disconnected(ReasonError):
    """The broker ended this connection and continues to run."""
