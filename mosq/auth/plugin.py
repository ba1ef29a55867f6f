"""What a plugin in Python may do: subclass `Plugin`, and write the methods that it needs. docs/plugins.md has
examples.

    plugin python:package.module:Class          or `plugin python:NAME` for an entry point of the group `mosq.plugins`
    plugin_opt_KEY VALUE                        given to the constructor: {"KEY": "VALUE"}

A plugin's methods run in a thread of its own, one call at a time; with `concurrent = True` in `threads` threads,
several at a time. They may wait: no client but the one that is asked about waits with them, and that one no longer
than `auth_timeout`. An exception refuses what was asked. Methods that a plugin does not write are never called and
cost nothing.
"""

from typing import Any, Literal, NamedTuple

READ, WRITE, SUBSCRIBE, UNSUBSCRIBE = 1, 2, 4, 8    # AclRequest.access


class Verdict(NamedTuple):
    """What a plugin says. Use the constants, and `allow_as`, `allow_with`, `go_on` where there is more to say."""

    decision: Literal["allow", "deny", "defer", "continue"]
    username: str | None = None         # allow: the client is taken for this user from now on
    data: bytes | None = None           # allow, continue: the authentication data that the client gets [v5 4.12]


ALLOW = Verdict("allow")
DENY = Verdict("deny")
DEFER = Verdict("defer")                # the next plugin decides, then the password_file; nobody does: no


def allow_as(username: str) -> Verdict:
    return Verdict("allow", username=username)


def allow_with(data: bytes, username: str | None = None) -> Verdict:
    return Verdict("allow", username=username, data=data)


def go_on(data: bytes | None) -> Verdict:
    """Another step of an exchange: the client gets this and answers."""
    return Verdict("continue", data=data)


class ConnectRequest(NamedTuple):
    """A client that wants in."""

    client_id: str
    username: str | None
    password: bytes | None
    address: str
    port: int
    version: int                        # 3: 3.1, 4: 3.1.1, 5: 5.0
    identity: dict[str, Any] | None     # of a TLS client certificate: common_name, subject, certificate_pem

    def __repr__(self) -> str:          # it ends up in somebody's log
        return f"ConnectRequest(client_id={self.client_id!r}, username={self.username!r}, address={self.address!r})"


class AuthStep(NamedTuple):
    """One step of an exchange of AUTH packets [v5 4.12]; the first is a CONNECT, or the AUTH that begins anew."""

    method: str
    data: bytes | None
    first: bool
    reauth: bool                        # of a client that is connected
    client_id: str
    username: str | None
    address: str
    state: dict[str, Any]               # the plugin's own, from the first step of this exchange to the last

    def __repr__(self) -> str:
        return f"AuthStep(method={self.method!r}, first={self.first}, client_id={self.client_id!r})"


class AclRequest(NamedTuple):
    """May it? The answer is remembered for this client, access and topic until it leaves or the broker reloads."""

    client_id: str
    username: str | None
    address: str
    access: int                         # READ, WRITE, SUBSCRIBE or UNSUBSCRIBE
    topic: str
    qos: int
    retain: bool
    payload: bytes | None


class Message(NamedTuple):
    """A message on its way; `message._replace(payload=...)` makes a changed one."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: bytes                   # as they were sent [v5 2.2.2]; they cannot be changed
    client_id: str                      # message_in: who published it; message_out: who gets it
    username: str | None


DROP: Literal["drop"] = "drop"          # what message_in and message_out return so that a message goes no further


class ClientEvent(NamedTuple):
    """Something that has happened."""

    client_id: str
    username: str | None
    detail: str                         # connected: ; disconnected: the reason; subscribed, unsubscribed: the filter


class Broker:
    """What a plugin can ask of the broker, from any thread. `self.broker` is set after the constructor."""

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> None:
        raise NotImplementedError

    def log(self, text: str) -> None:
        """A line of type information, with the plugin's name before it. No secrets."""
        raise NotImplementedError


class Plugin:
    """The base of all plugins. A constructor that raises ValueError refuses its options: the broker does not start."""

    concurrent: bool = False            # True: methods are called from several threads at a time
    threads: int = 8                    # so many, if concurrent
    topics_in: tuple[str, ...] = ()     # filters of the messages that message_in is called for; others cost nothing
    topics_out: tuple[str, ...] = ()
    broker: Broker

    def __init__(self, options: dict[str, str]) -> None:
        """`options`: what stood in plugin_opt_ lines."""

    def authenticate(self, request: ConnectRequest) -> Verdict:
        """A CONNECT without an authentication method."""
        return DEFER

    def extended(self, step: AuthStep) -> Verdict:
        """A step of an exchange of AUTH packets. DEFER: this method is not ours."""
        return DEFER

    def authorize(self, request: AclRequest) -> Verdict:
        """ALLOW, DENY or DEFER."""
        return DEFER

    def message_in(self, message: Message) -> "Message | Literal['drop'] | None":
        """What a client published, before it is routed. None: as it is."""
        return None

    def message_out(self, message: Message) -> "Message | Literal['drop'] | None":
        """What a client is about to get. None: as it is."""
        return None

    def connected(self, event: ClientEvent) -> None:
        """A client came in."""

    def disconnected(self, event: ClientEvent) -> None:
        """A client left."""

    def subscribed(self, event: ClientEvent) -> None:
        """A client subscribed."""

    def unsubscribed(self, event: ClientEvent) -> None:
        """A client unsubscribed."""

    def tick(self) -> None:
        """About once a second."""

    def reload(self, options: dict[str, str]) -> None:
        """The configuration was read again. A plugin without this method is made anew if its options have changed."""

    def close(self) -> None:
        """The broker stops, or goes on without this plugin."""
