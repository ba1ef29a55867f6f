"""The errors of the embedding API. In addition, an error in a configuration is a `ConfigError`, a port that is not
available an `OSError`, a time-out a `TimeoutError`, and a value that no packet can carry a `ValueError`."""

# [v5 2.4]
REASONS = {
    0x80: "unspecified error", 0x81: "malformed packet", 0x82: "protocol error",
    0x83: "implementation specific error", 0x87: "not authorized", 0x88: "server unavailable", 0x89: "server busy",
    0x8B: "server shutting down", 0x8D: "keep alive timeout", 0x8E: "session taken over",
    0x8F: "topic filter invalid", 0x90: "topic name invalid", 0x91: "packet identifier in use",
    0x92: "packet identifier not found", 0x93: "receive maximum exceeded", 0x94: "topic alias invalid",
    0x95: "packet too large", 0x96: "message rate too high", 0x97: "quota exceeded", 0x98: "administrative action",
    0x99: "payload format invalid", 0x9A: "retain not supported", 0x9B: "QoS not supported",
    0x9E: "shared subscriptions not supported", 0xA1: "subscription identifiers not supported",
    0xA2: "wildcard subscriptions not supported",
}


class BrokerError(Exception):
    """The base class of the errors that a running broker causes."""


class BrokerStopped(BrokerError):
    """The broker is not running: not started or already stopped."""


class SubscriptionClosed(BrokerError):
    """No more messages will come: the subscription was closed, or the broker stopped. Iteration simply ends."""


class ReasonError(BrokerError):
    """The broker refused; `reason` is the code of MQTT 5 [v5 2.4]."""

    def __init__(self, what: str, reason: int) -> None:
        super().__init__(f"{what}: {REASONS.get(reason, 'unknown reason')} (0x{reason:02X})")
        self.reason = reason


class PublishError(ReasonError):
    """The broker refused a message."""


class SubscribeError(ReasonError):
    """The broker refused a filter."""


class Disconnected(ReasonError):
    """The broker ended this connection and continues to run."""
