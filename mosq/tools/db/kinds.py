"""Define the kinds of records, with the numbers of cext/session/record.pxd."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SESSION, SUB, UNSUB, END, MSG, ACKS, RELEASED, INBOX, INBOX_DONE = range(1, 10)
RETAINED_GONE, WILL, WILL_GONE, META, RETAINED_FROM, STREAMS, CLIENT_WILL, CLIENT_WILL_GONE = range(10, 18)
PUBLISHER, GATED, GATED_DONE, WAITING_WILL, WAITING_WILL_GONE = range(18, 23)
LINK_RUN, LINK_MARK, LINK_IDENTITY, LINK_IDENTITY_GONE, LINK_CHOICE, LINK_WILL, UNDELIVERED = range(23, 30)
NAMES = {
    SESSION: "session",
    SUB: "sub",
    UNSUB: "unsub",
    END: "end",
    MSG: "msg",
    ACKS: "acks",
    RELEASED: "released",
    INBOX: "inbox",
    INBOX_DONE: "inbox_done",
    RETAINED_GONE: "retained_gone",
    WILL: "will",
    WILL_GONE: "will_gone",
    META: "meta",
    RETAINED_FROM: "retained_from",
    STREAMS: "streams",
    CLIENT_WILL: "client_will",
    CLIENT_WILL_GONE: "client_will_gone",
    PUBLISHER: "publisher",
    GATED: "gated",
    GATED_DONE: "gated_done",
    WAITING_WILL: "waiting_will",
    WAITING_WILL_GONE: "waiting_will_gone",
    LINK_RUN: "link_run",
    LINK_MARK: "link_mark",
    LINK_IDENTITY: "link_identity",
    LINK_IDENTITY_GONE: "link_identity_gone",
    LINK_CHOICE: "link_choice",
    LINK_WILL: "link_will",
    UNDELIVERED: "undelivered",
}

# where a session or a message came from: ORIGIN_KNOWN, ORIGIN_SHARED and ORIGIN_PORT of cext/broker/core/listener.pxd
_KNOWN, _SHARED, _PORT = 1 << 31, 1 << 30, 0xFFFF


def origin_of_port(port: int) -> int:
    """Return the origin of something that Mosquitto stored with the port of its listener; 0: unknown."""
    return _KNOWN | _SHARED | (port & _PORT)


def port_of(origin: int, ports: "Mapping[int, int]") -> int:
    """Return the port of an origin; 0: unknown. `ports`: the port for each position, which older versions stored."""
    return origin & _PORT if origin & _KNOWN and origin > 0 else ports.get(origin, 0)


BY_NAME = {name: kind for kind, name in NAMES.items()}
