"""The plugin API: subclass `Plugin` and write the methods that the plugin needs. docs/plugins.md has examples.

  plugin python:package.module:Class          or `plugin python:NAME` for an entry point of the group `mosq.plugins`
  plugin_opt_KEY VALUE                        passed to the constructor: {"KEY": "VALUE"}

A plugin's methods run in a thread of its own, one call at a time; with `concurrent = True` in `threads` threads,
several at a time. A method may wait: only the client of the request waits with it, and no longer than `auth_timeout`.
An exception refuses the request. Methods that a plugin does not define are never called and cost nothing.
"""

from typing import Any, Literal, NamedTuple

READ, WRITE, SUBSCRIBE, UNSUBSCRIBE = 1, 2, 4, 8    # AclRequest.access


class Verdict(NamedTuple):
    """The answer of a plugin. Use the constants, or `allow_as`, `allow_with` and `go_on` for answers with more data."""

    decision: Literal["allow", "deny", "defer", "continue"]
    username: str | None = None         # allow: the client has this user name from now on
    data: bytes | None = None           # allow, continue: the authentication data that the client gets [v5 4.12]


ALLOW = Verdict("allow")
DENY = Verdict("deny")
DEFER = Verdict("defer")                # the next plugin decides, then the password_file; without a decision: denied


def allow_as(username: str) -> Verdict:
    """Allow the login and give the client this user name."""
    return Verdict("allow", username=username)


def allow_with(data: bytes, username: str | None = None) -> Verdict:
    """Allow the login and send the client this authentication data [v5 4.12]."""
    return Verdict("allow", username=username, data=data)


def go_on(data: bytes | None) -> Verdict:
    """Continue an AUTH exchange: the client gets `data` and answers."""
    return Verdict("continue", data=data)


class ConnectRequest(NamedTuple):
    """A login: the data of a CONNECT packet and its connection."""

    client_id: str
    username: str | None
    password: bytes | None
    address: str
    port: int
    version: int                        # 3: 3.1, 4: 3.1.1, 5: 5.0
    identity: dict[str, Any] | None     # TLS client certificate: common_name, subject, certificate_pem

    def __repr__(self) -> str:          # without the password, because the text may be logged
        return f"ConnectRequest(client_id={self.client_id!r}, username={self.username!r}, address={self.address!r})"


class AuthStep(NamedTuple):
    """One step of an exchange of AUTH packets [v5 4.12]. The first step is a CONNECT, or the AUTH that begins a
    re-authentication."""

    method: str
    data: bytes | None
    first: bool
    reauth: bool                        # whether the client is already connected
    client_id: str
    username: str | None
    address: str
    state: dict[str, Any]               # for the plugin's use, from the first step of this exchange to the last

    def __repr__(self) -> str:
        return f"AuthStep(method={self.method!r}, first={self.first}, client_id={self.client_id!r})"


class AclRequest(NamedTuple):
    """A request for access to a topic. The broker remembers the answer for this client, access and topic until the
    client disconnects or the broker reloads."""

    client_id: str
    username: str | None
    address: str
    access: int                         # READ, WRITE, SUBSCRIBE or UNSUBSCRIBE
    topic: str
    qos: int
    retain: bool
    payload: bytes | None


class Message(NamedTuple):
    """A message; `message._replace(payload=...)` makes a changed copy."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: bytes                   # as sent [v5 2.2.2]; they cannot be changed
    client_id: str                      # message_in: the publisher; message_out: the subscriber
    username: str | None


DROP: Literal["drop"] = "drop"          # returned by message_in or message_out to discard a message


class ClientEvent(NamedTuple):
    """An event of a client."""

    client_id: str
    username: str | None
    detail: str                         # connected: ""; disconnected: the reason; subscribed, unsubscribed: the filter


class Broker:
    """The broker's services for a plugin; any thread may call them. `self.broker` is set after the constructor."""

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> None:
        """Publish a message. Raises ValueError for an invalid topic or QoS."""
        raise NotImplementedError

    def log(self, text: str) -> None:
        """Log a line of type information with the plugin's name before it. Do not log secrets."""
        raise NotImplementedError


class Plugin:
    """The base class of all plugins. A constructor that raises ValueError refuses its options: the broker does not
    start."""

    concurrent: bool = False            # True: methods are called from several threads at a time
    threads: int = 8                    # number of threads if concurrent
    topics_in: tuple[str, ...] = ()     # message_in is called for messages that match these filters
    topics_out: tuple[str, ...] = ()
    broker: Broker

    def __init__(self, options: dict[str, str]) -> None:
        """`options`: the values of the plugin_opt_ lines."""

    def authenticate(self, request: ConnectRequest) -> Verdict:
        """Decide about a CONNECT without an authentication method."""
        return DEFER

    def extended(self, step: AuthStep) -> Verdict:
        """Decide about a step of an exchange of AUTH packets. DEFER: this plugin does not know the method."""
        return DEFER

    def authorize(self, request: AclRequest) -> Verdict:
        """Decide about access to a topic: ALLOW, DENY or DEFER."""
        return DEFER

    def message_in(self, message: Message) -> "Message | Literal['drop'] | None":
        """Return the changed message of a publisher before it is routed. None: unchanged."""
        return None

    def message_out(self, message: Message) -> "Message | Literal['drop'] | None":
        """Return the changed message before a subscriber gets it. None: unchanged."""
        return None

    def connected(self, event: ClientEvent) -> None:
        """Called after a client connected."""

    def disconnected(self, event: ClientEvent) -> None:
        """Called after a client disconnected."""

    def subscribed(self, event: ClientEvent) -> None:
        """Called after a client subscribed."""

    def unsubscribed(self, event: ClientEvent) -> None:
        """Called after a client unsubscribed."""

    def tick(self) -> None:
        """Called about once a second."""

    def reload(self, options: dict[str, str]) -> None:
        """Called after the configuration was read again. A plugin without this method is replaced by a new instance if
        its options changed."""

    def close(self) -> None:
        """Called when the broker stops, or continues without this plugin."""
