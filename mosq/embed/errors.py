"""What can go wrong while a program talks to its own broker. A mistake in a configuration is a `ConfigError`; a port
that cannot be had is an `OSError`; a wait that took too long is a `TimeoutError`; a value no packet could carry is a
`ValueError`."""

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
    """The root of what a running broker answers with."""


class BrokerStopped(BrokerError):
    """The broker does not run: not yet, or not any more."""


class SubscriptionClosed(BrokerError):
    """There is nothing more to come: the subscription was closed, or the broker stopped. Iteration just ends."""


class ReasonError(BrokerError):
    """The broker said no; `reason` is the code of MQTT 5 [v5 2.4]."""

    def __init__(self, what: str, reason: int) -> None:
        super().__init__(f"{what}: {REASONS.get(reason, 'unknown reason')} (0x{reason:02X})")
        self.reason = reason


class PublishError(ReasonError):
    """A message was not taken."""


class SubscribeError(ReasonError):
    """A filter was not taken."""


class Disconnected(ReasonError):
    """The broker ended this connection while it goes on itself."""
