"""Records between the control plane and the data plane: each request, answer, log line and row of a listing, with its
fields, their types and units.

`cext/setup/requests.pyx` builds requests and reads answers, `cext/engine.pyx` builds log lines and rows. A record is a
tuple with named fields: it is cheap to make, immutable, and compared by class and value. `_fields` lists the names.
This module is imported before the broker listens: it imports neither `typing` nor `collections.namedtuple`, which
compiles each class from source text.

Every `handle` is opaque. It belongs to one request or, for connect and auth, to one exchange of packets; an answer
repeats it. A handle below 0 belongs to the HTTP API. Every `security` is a position in the list of securities that the
Engine received. `username` is None for a client without a user name.
"""

from __future__ import annotations

from _operator import itemgetter  # `operator` is slow to load

from mosq.reason_codes import SERVER_BUSY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, Self, dataclass_transform
else:
    def dataclass_transform(**_options):
        return lambda made: made

# LoginAnswer.code: allow_anonymous decides for a client without a user name; one with a user name is refused
NO_OPINION = -1
NOT_CHECKED = -3                        # as if no component checked logins: a user name does not matter
ASK_NATIVES = -4                        # LoginAnswer.code: the loop asks its native plugins
END_SILENTLY = -2                       # LoginAnswer.code: the connection ends without an answer
SECRET = ("password", "data")           # fields that a printed record leaves out


@dataclass_transform(frozen_default=True)
class RecordType(type):
    """Make a class whose annotations are its fields, in their order, as `typing.NamedTuple` does. A value in the class
    body is the field's default. An annotation `ClassVar` declares an attribute of the class."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> RecordType:
        declared = body.get("__annotations__", {})
        fields = tuple(field for field, kind in declared.items() if not kind.startswith("ClassVar"))
        body["_defaults"] = {field: body.pop(field) for field in fields if field in body}
        body["_fields"] = fields
        body["__slots__"] = ()
        for place, field in enumerate(fields):
            body[field] = property(itemgetter(place))
        return super().__new__(cls, name, bases, body)


class Record(tuple, metaclass=RecordType):      # type: ignore[type-arg]
    """The base of all records."""

    _fields: ClassVar[tuple[str, ...]]
    _defaults: ClassVar[dict[str, Any]]
    kind: ClassVar[str] = ""

    def __new__(cls, *values: Any, **named: Any) -> Self:
        left = cls._fields[len(values):]
        if left:
            try:
                values += tuple([named.pop(field) if field in named else cls._defaults[field] for field in left])
            except KeyError as error:
                raise TypeError(f"{cls.__name__} needs a value for {error}") from None
        if named or len(values) != len(cls._fields):
            raise TypeError(f"{cls.__name__} has the fields {', '.join(cls._fields)}")
        return tuple.__new__(cls, values)

    def _replace(self, **named: Any) -> Self:
        """Return a copy with other values in some fields."""
        return type(self)(**{**dict(zip(self._fields, self, strict=True)), **named})

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        return type(self), tuple(self)      # workers send records to each other

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __repr__(self) -> str:
        fields = (f"{name}={'...' if name in SECRET and value is not None else repr(value)}"
                  for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({', '.join(fields)})"


# ---------------------------------------------------------------- requests: Engine.requests()

class LoginRequest(Record):
    """Ask whether a client that sent CONNECT may log in. LoginAnswer answers it; LoginWait may come before."""

    kind: ClassVar[str] = "connect"
    handle: int
    security: int
    client_id: str
    username: str | None
    password: bytes | None
    address: str                        # of the client, without port
    port: int                           # of the client
    version: int                        # 3: MQTT 3.1, 4: 3.1.1, 5: 5.0
    method: str | None                  # authentication method [v5 3.1.2.11.9]
    data: bytes | None                  # authentication data [v5 3.1.2.11.10]
    identity: dict[str, str] | None     # of the TLS certificate: common_name, subject, certificate_pem, if present
    facts: bytes | None = None          # for native plugins: ClientFacts of cext/broker/auth/auth_requests.pxd
    pause: bool = False                 # ask only whether the login is refused for earlier failures; else ASK_NATIVES


class ExchangeRequest(Record):
    """Ask about an AUTH packet [v5 3.15]. LoginAnswer answers it. Before the client is connected, its LoginRequest has
    reported client id and user name, and the broker's own client id and no user name are in this record."""

    kind: ClassVar[str] = "auth"
    handle: int
    security: int
    method: str
    data: bytes | None
    connected: bool                     # True: the client is connected and authenticates again
    client_id: str = ""
    username: str | None = None
    address: str = ""
    facts: bytes | None = None


class AccessRequest(Record):
    """Ask whether a client may use a topic. AccessAnswer answers it."""

    kind: ClassVar[str] = "acl"
    handle: int
    security: int
    client_id: str
    username: str | None
    address: str
    access: int                         # 1: read, 2: write, 4: subscribe, 8: unsubscribe
    topic: str                          # or filter, for subscribe and unsubscribe
    qos: int                            # for native plugins and subscribe: the options of the subscription
    retain: bool
    payload: bytes | None = None        # only for native plugins
    facts: bytes | None = None
    properties: bytes = b""             # only for native plugins


class RolesRequest(Record):
    """Ask whether the roles of dynamic security let a user read or write a topic. AccessAnswer answers it. Only the
    HTTP API asks."""

    kind: ClassVar[str] = "roles"
    handle: int
    security: int
    client_id: str
    username: str | None
    topic: str
    access: int = 1                     # 1: read, 2: write


class MessageRequest(Record):
    """Ask plugins what becomes of a message. MessageAnswer answers it."""

    way: str                            # "message_in": from this client; "message_out": for this client
    handle: int
    security: int
    client_id: str
    username: str | None
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: bytes                   # as the publisher sent them [v5 2.2.2]
    facts: bytes | None = None

    @property
    def kind(self) -> str:              # type: ignore[override]
        return self.way


class CommandRequest(Record):
    """Report a PUBLISH below `$CONTROL/`. CommandAnswer answers it, or nothing. The handle is the client's and is valid
    while it is connected."""

    kind: ClassVar[str] = "control"
    handle: int
    security: int
    client_id: str
    username: str | None
    address: str
    topic: str
    payload: bytes
    correlation: bytes | None           # correlation data [v5 3.3.2.3.6]
    facts: bytes | None = None


class BridgeEvent(Record):
    """Report a change of a bridge."""

    kind: ClassVar[str] = "bridge"
    handle: ClassVar[int] = 0
    name: str                           # of the bridge
    event: str                          # up, down, refused, wanted: a lazy bridge has `threshold` deliveries waiting,
                                        # idle: no packet went through for idle_ms
    detail: str = ""                    # up: "session present" or ""; down: the reason; refused: the code of CONNACK as
                                        # it came, a blank, the reason


class ClientNotice(Record):
    """Report something that happened to a client, for plugins that take events. No answer follows."""

    kind: ClassVar[str] = "event"
    handle: ClassVar[int] = 0
    security: int
    event: str                          # connected, disconnected, subscribed, unsubscribed
    client_id: str
    username: str | None
    detail: str                         # connected: address; disconnected: the reason; subscribed, unsubscribed: filter
    facts: bytes | None = None
    code: int = 0                       # disconnected: the reason as a number, see END_ in cext/broker/core/client.pxd
    offline: bool = False               # disconnected: the session stays


# ---------------------------------------------------------------- answers: Engine.answer()

class LoginAnswer(Record):
    """Decide about a LoginRequest or an ExchangeRequest."""

    kind: ClassVar[str] = "connect"
    handle: int
    code: int                           # SUCCESS: let in; CONTINUE_AUTHENTICATION: next step; NO_OPINION; else
                                        # the code of mosq.reason_codes with which the client is refused
    username: str | None = None         # replaces the client's user name; at most 65535 bytes
    data: bytes | None = None           # authentication data for the client; at most 65535 bytes
    client_id: str | None = None        # replaces the client id
    plugin: str | None = None           # refused: the plugin that refuses the login, for the log


class LoginWait(Record):
    """Prolong the time that the data plane gives a login before it answers it itself."""

    kind: ClassVar[str] = "wait"
    handle: int
    seconds: int                        # 1 to 3600, from now


class AskAgain(Record):
    """Report that no component was asked, because the request is of a former configuration. The data plane asks again
    under the one in force."""

    kind: ClassVar[str] = "again"
    handle: int


class AccessAnswer(Record):
    """Decide about an AccessRequest."""

    kind: ClassVar[str] = "acl"
    handle: int
    allowed: bool | None                # None: no opinion; the rules of the security decide
    filter: str | None = None           # subscribe, unsubscribe: replaces the filter of the client
    options: int = 0                    # with `filter`: options of the subscription [v5 3.8.3.1]


class Content(Record):
    """The parts of a message that a plugin may change."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: bytes | None = None     # replaces the properties [v5 2.2.2]; None: they stay


class MessageAnswer(Record):
    """Decide about a MessageRequest."""

    way: str                            # as in the request
    handle: int
    content: Content | None             # None: drop the message

    @property
    def kind(self) -> str:              # type: ignore[override]
        return self.way


class CommandAnswer(Record):
    """Send messages to the client of a CommandRequest alone, with QoS 0. Other clients receive a PublishCommand."""

    kind: ClassVar[str] = "control"
    handle: int
    messages: list[tuple[str, bytes]]   # topic, payload
    correlation: bytes | None = None    # correlation data


class PublishCommand(Record):
    """Publish a message in the broker's name. It belongs to no request."""

    kind: ClassVar[str] = "publish"
    handle: ClassVar[int] = 0
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    expiry_s: int | None = None         # seconds; 0: never; None: 20 below $SYS/broker/log/, never elsewhere
    properties: bytes | None = None     # [v5 2.2.2]
    client_id: str | None = None        # only to the session with this client id, whatever it has subscribed to
    here: bool = False                  # only to subscribers of this worker


class KickCommand(Record):
    """End the connections of users, after the answers that were given before. It belongs to no request."""

    kind: ClassVar[str] = "kick"
    handle: ClassVar[int] = 0
    usernames: list[str | None]         # None: clients without a user name


if TYPE_CHECKING:
    AuthRequest = LoginRequest | ExchangeRequest | AccessRequest | RolesRequest | MessageRequest | ClientNotice
    Request = AuthRequest | CommandRequest | BridgeEvent
    Answer = (LoginAnswer | LoginWait | AskAgain | AccessAnswer | MessageAnswer | CommandAnswer | PublishCommand
              | KickCommand)


def unasked(request: AuthRequest) -> Answer:
    """Return the answer to a request of a former configuration. The HTTP API (handles below 0) does not ask again."""
    return AskAgain(request.handle) if request.handle >= 0 else refused(request, SERVER_BUSY)


def refused(request: AuthRequest, code: int) -> Answer:
    """Return the answer that refuses a request. `code` is the reason code for a login."""
    if isinstance(request, (LoginRequest, ExchangeRequest)):
        return LoginAnswer(request.handle, code)
    if isinstance(request, MessageRequest):
        return MessageAnswer(request.way, request.handle, None)
    return AccessAnswer(request.handle, False if isinstance(request, AccessRequest) else None)


# ---------------------------------------------------------------- log lines and listings

class LogLine(Record):
    """One line of the log: Engine.drain() returns those of the data plane. The data plane fills the fields after `text`
    only with the setting log_json."""

    kind: ClassVar[str] = "log"
    seconds: int                        # wall clock, since 1970
    type: int                           # one bit of mosq.log_types
    text: str
    milliseconds: int = 0               # of the wall clock, 0 to 999
    client_id: str = ""                 # of the client that the line is about; "" for none
    address: str = ""                   # of that client
    port: int = 0                       # of that client
    listener: int = 0                   # port of that client's listener; 0 for none


class TraceEvent(Record):
    """One event of a trace: Engine.trace_events(). docs/trace.md describes them."""

    kind: ClassVar[str] = "trace"
    us: int                             # wall clock, microseconds since 1970
    event: int                          # 1 received, 2 sent, 3 access, 4 queued, 5 dropped, 6 closed, 7 end of trace
    slots: int                          # bit 1 << slot of the traces that it belongs to
    client: int                         # opaque, for one connection; 0: none
    client_id: str
    address: str
    own_address: str                    # the broker's, of a packet's connection
    port: int
    listener: int
    version: int                        # protocol level; 0: not known yet
    code: int                           # access: 0 denied, 1 allowed, 2 a plugin decides; dropped: reason; end: why
    qos: int                            # access: 1 read, 2 write, 4 subscribe, 8 unsubscribe
    queue: int                          # deliveries in the client's queue
    topic: str
    text: str                           # access: the rule; closed: the reason
    head: bytes                         # of a packet: its bytes before the payload, secrets replaced
    payload: bytes                      # the first bytes of its payload
    total: int                          # bytes of the whole packet


class SubscriptionRow(Record):
    """A subscription in the listing of all: Engine.subscriptions()."""

    client_id: str
    filter: str                         # as the client sent it
    qos: int


class SessionSubscription(Record):
    """A subscription of one session: Engine.session()."""

    filter: str                         # as the client sent it
    options: int                        # subscription options [v5 3.8.3.1]
    identifier: int                     # subscription identifier; 0: none


class SessionDetail(Record):
    """One session: Engine.session()."""

    session: dict[str, Any]             # see cext/setup/inspection.py
    subscriptions: list[SessionSubscription]
    left_out: int                       # subscriptions after these


class SessionSlice(Record):
    """A part of the listing of all sessions: Engine.sessions()."""

    sessions: list[dict[str, Any]]      # see cext/setup/inspection.py
    cursor: int                         # for the next slice; 0: this was the last


class SlowClient(Record):
    """The queue and the output of a client: Engine.slow()."""

    client_id: str                      # of a long one, the beginning
    length: int                         # bytes of the client id
    known: bool                         # False: the session has ended, and all numbers are 0
    connected: bool
    queued: int                         # deliveries that were never sent
    queue_bytes: int
    age_ms: int | None                  # since the arrival of the oldest delivery that is not complete; None: not known
    unsent_bytes: int
    inflight: int


class SlowSlice(Record):
    """A part of a walk over all sessions: Engine.slow()."""

    clients: list[SlowClient]           # connected ones with a long queue or much unsent output
    cursor: int                         # for the next slice; 0: this was the last
    queued: int                         # sums of the slice's sessions, also without a connection: never sent
    inflight: int                       # sent and not acknowledged
    queue_bytes: int                    # payloads of both


class HotName(Record):
    """A name in a sketch of the sampled messages."""

    key: tuple[bytes, int]              # beginning and length: equal for a name in both windows
    text: str                           # of a long one, the beginning
    length: int                         # bytes
    total: int                          # messages, deliveries, or microseconds for delays
    error: int                          # at most this much of `total` belongs to other names
    bytes: int                          # of total - error; for delays the number of deliveries
    client: SlowClient | None           # for delays


class HotNames(Record):
    """A sketch: Engine.hot()."""

    period: int                         # one message in this many is sampled
    window_us: int                      # time that both windows cover together
    least: tuple[int, int]              # count that a name may have that is not in the window: this one, the one before
    windows: tuple[list[HotName], list[HotName]]    # this one, the one before


class WorkerLoad(Record):
    """The load of one worker, also of its processes that have ended."""

    cpu_us: int                         # processor time
    clients: int                        # connected
    publish_in: int                     # PUBLISH packets of its clients
    publish_out: int                    # to its clients


class WholeFigures(Record):
    """The sums of all workers: Engine.whole()."""

    stats: dict[str, int]               # as Engine.stats()
    listener_drops: dict[str, dict[str, int]]   # as Engine.listener_drops()
    observed: dict[str, Any] | None     # as Engine.observed()
    cpu_us: int                         # processor time, also of processes that have ended
    uptime_ms: int                      # since the broker began
    silent_ms: list[int | None]         # for each worker: since it last wrote its figures; None: it is starting
    links: list[tuple[int, int]]        # for each worker: numbered messages to it, and QoS 0 that links to it dropped
    logins: tuple[int, int]             # that failed, and that auth_backoff refused
    loads: list[WorkerLoad]             # for each worker


class SubscriptionListing(Record):
    """All subscriptions up to a maximum: Engine.subscriptions()."""

    rows: list[SubscriptionRow]
    left_out: int                       # subscriptions that are not listed
