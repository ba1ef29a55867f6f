"""The forms of questions between workers of a cluster, and of their answers, as JSON. No I/O.

    question   [NAME, [ARGUMENT, ...]]
    answer     {"value": VALUE}     or {"error": ERRNO}; 0: the worker has no answer

On one machine a question is a pickle, because all workers are one program of one user. From another machine it could
run any code. So here each question has a fixed form, and so has its answer. A reader takes only values of these forms;
records are lists of their fields, and bytes are base64. Fields that it does not know are left out, so a later version
may add some: to the end of a record, or to a row. A name that it does not know is a question without an answer.

Limits: QUESTION_BYTES and ANSWER_BYTES. A listing that does not fit is asked for again with half of its rows.
"""

import json
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64

from mosq.records import (
    HotName,
    HotNames,
    SessionDetail,
    SessionSlice,
    SessionSubscription,
    SlowClient,
    SlowSlice,
    SubscriptionListing,
    SubscriptionRow,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Form = Callable[[Any], Any]         # returns the value that a value of JSON stands for; raises ValueError

QUESTION_BYTES = 1 << 20        # a client id, or a batch of events of a trace, of which one may have 300 KB
ANSWER_BYTES = 1 << 22
TEXT_MAX = 65535                # characters of a client id, a user name or a filter
BITS_32, BITS_64 = (1 << 32) - 1, (1 << 64) - 1
PLACES_MAX = 64                 # workers of a cluster
ROWS_MAX, LISTED_MAX = 1000, 100_000
HOT_MAX = 10_000                # names of a sketch
EVENTS_MAX = 10_000             # of a trace, in one notice
ERRNO_MAX = 4095


class NoAnswerError(Exception):
    """The other worker has no answer: it does not know the question, it ends, or the answer would be too large."""


# ---------------------------------------------------------------- parts of forms

def _checked(is_right: bool) -> None:
    if not is_right:
        raise ValueError("a value has another form")


def number(most: int = BITS_64, least: int = 0) -> "Form":
    """Return the form of a whole number."""
    def read(value: "Any") -> int:
        _checked(type(value) is int and least <= value <= most)
        return value                    # type: ignore[no-any-return]

    return read


def flag(value: "Any") -> bool:
    """Read true or false."""
    _checked(type(value) is bool)
    return value                        # type: ignore[no-any-return]


def text(value: "Any") -> str:
    """Read a text that can be sent on: JSON may have half of a surrogate pair."""
    _checked(type(value) is str and len(value) <= TEXT_MAX)
    if not value.isascii():
        value.encode()                  # UnicodeEncodeError is a ValueError
    return value                        # type: ignore[no-any-return]


def raw(value: "Any") -> bytes:
    """Read bytes."""
    _checked(type(value) is str)
    try:
        return a2b_base64(value.encode("ascii"), strict_mode=True)
    except Base64Error:
        raise ValueError("no base64") from None


def filter_(value: "Any") -> bytes:
    """Read the bytes of a client id or a filter."""
    found = raw(value)
    _checked(len(found) <= 4 * TEXT_MAX)
    return found


def event(value: "Any") -> bytes:
    """Read an event of a trace: the bytes of a JSON object, which a reader of the trace gets as they are."""
    found = raw(value)
    _checked(type(_parsed(found.decode())) is dict)
    return found


def nothing(value: "Any") -> None:
    """Read null."""
    _checked(value is None)


def one_of(*values: str) -> "Form":
    """Return the form of a text that is one of these."""
    def read(value: "Any") -> str:
        _checked(type(value) is str and value in values)
        return value                    # type: ignore[no-any-return]

    return read


def maybe(form: "Form") -> "Form":
    """Return the form of a value that may be missing."""
    return lambda value: None if value is None else form(value)


def some(form: "Form", most: int) -> "Form":
    """Return the form of a list."""
    def read(value: "Any") -> "list[Any]":
        _checked(type(value) is list and len(value) <= most)
        return [form(one) for one in value]

    return read


def fields(*forms: "Form") -> "Form":
    """Return the form of a tuple, of which a later version may have more."""
    def read(value: "Any") -> "tuple[Any, ...]":
        _checked(type(value) is list and len(value) >= len(forms))
        return tuple(form(one) for form, one in zip(forms, value, strict=False))

    return read


def record(kind: "Callable[..., Any]", *forms: "Form") -> "Form":
    """Return the form of a record."""
    read = fields(*forms)
    return lambda value: kind(*read(value))


def row(needed: "dict[str, Form]", optional: "dict[str, Form] | None" = None) -> "Form":
    """Return the form of an object with these members; others are left out."""
    others = {} if optional is None else optional

    def read(value: "Any") -> "dict[str, Any]":
        _checked(type(value) is dict and needed.keys() <= value.keys())
        return {name: form(value[name]) for name, form in {**needed, **others}.items() if name in value}

    return read


# ---------------------------------------------------------------- forms of the listings

SESSION = row({"id": text, "username": maybe(text), "connected": flag, "subscriptions": number(), "pending": number(),
               "waiting": number(), "inflight": number(), "inbox": number(), "queue_bytes": number(),
               "expiry_s": maybe(number()), "will": flag}, {"ends_s": number()})
CONNECTION = row({"version": number(), "keepalive": number(), "port": maybe(number()), "listener": number(),
                  "unsent_bytes": number(), "window": number(), "address": maybe(text), "websockets": flag,
                  "tls": flag})


def session(value: "Any") -> "dict[str, Any]":
    """Read a session, as cext/setup/inspection.pyx makes it."""
    found: dict[str, Any] = SESSION(value)
    return {**found, **CONNECTION(value)} if found["connected"] else found


SLOW = record(SlowClient, text, number(), flag, flag, number(), number(), maybe(number()), number(), number())
LINK = row({name: number() for name in (
    "connected", "routes", "routes_digest", "own_routes", "own_digest", "sent", "unacknowledged",
    "unacknowledged_bytes", "queued", "queued_bytes", "dropped", "latency_us", "latency_max_us", "latency_n",
    "latency_sum_us")} | {"place": number(PLACES_MAX - 1)})
BRIDGE = row({"name": text, "state": text, "address": text, "connectedFor": maybe(number()),
              "nextTryIn": maybe(number()), "queued": maybe(number())})
TRACE = row({"trace": number(), "kind": text, "what": text, "clientid": text})


def _sketch(client: "Form") -> "Form":
    name = record(HotName, fields(raw, number()), text, number(), number(), number(), number(), client)
    names = some(name, HOT_MAX)
    return maybe(record(HotNames, number(), number(), fields(number(), number()), fields(names, names)))


OF_NAMES, OF_DELAYS = _sketch(maybe(SLOW)), _sketch(SLOW)


# ---------------------------------------------------------------- forms of the questions

PLACE = number(PLACES_MAX - 1)
FOLLOWED = row({"kind": one_of("client", "topic", "address"), "what": filter_, "shown": text, "owner": number(),
                "payload": number(BITS_32), "rate": number(BITS_32), "seconds": number(BITS_32), "most": number()},
               {"network": raw, "bits": number(128), "port": number(65535)})
COUNTS = fields(number(), number(), number())
SKETCHES = ("topics", "publishers", "receivers", "delays")

ARGUMENTS: "dict[str, Form]" = {
    "bridge_states": fields(), "hot": fields(one_of(*SKETCHES)), "kick": fields(text), "link_figures": fields(),
    "session": fields(text, number(LISTED_MAX)), "sessions": fields(number(BITS_32), number(ROWS_MAX, 1)),
    "subscriptions": fields(number(LISTED_MAX)), "walk": fields(),
    "trace_begin": fields(PLACE, number(), FOLLOWED), "trace_end": fields(PLACE, number()), "trace_list": fields(),
    "trace_news": fields(number(), PLACE, some(event, EVENTS_MAX), COUNTS),
}
VALUES: "dict[str, Form]" = {
    "bridge_states": some(BRIDGE, ROWS_MAX), "hot": OF_NAMES, "kick": flag, "link_figures": some(LINK, PLACES_MAX),
    "session": maybe(record(SessionDetail, session, some(record(SessionSubscription, text, number(255),
                                                                number(BITS_32)), LISTED_MAX), number())),
    "sessions": record(SessionSlice, some(session, LISTED_MAX), number(BITS_32)),
    "subscriptions": record(SubscriptionListing, some(record(SubscriptionRow, text, text, number(2)), LISTED_MAX),
                            number()),
    "walk": record(SlowSlice, some(SLOW, ROWS_MAX), number(0), number(), number(), number()),
    "trace_begin": nothing, "trace_end": nothing, "trace_list": some(TRACE, ROWS_MAX), "trace_news": nothing,
}
OF_READER = {"trace_begin": 0, "trace_end": 0, "trace_news": 1}     # place of the argument that is the asker's place


# ---------------------------------------------------------------- bytes

def question_of(name: str, args: "tuple[Any, ...]") -> bytes:
    """Return a question as bytes. Raises ValueError if it is too large, or has a text that is no UTF-8."""
    data = _bytes([name, args])
    _checked(len(data) <= QUESTION_BYTES)
    return data


def read_question(data: bytes, place: int) -> "tuple[str, tuple[Any, ...]]":
    """Return name and arguments of a question of the worker at `place`. Raises ValueError."""
    found = _parsed(data.decode())
    _checked(type(found) is list and len(found) >= 2 and type(found[0]) is str and found[0] in ARGUMENTS)
    name, args = found[0], ARGUMENTS[found[0]](found[1])
    _checked(name not in OF_READER or args[OF_READER[name]] == place)
    return name, args


def answer_of(name: str, args: "tuple[Any, ...]", ask: "Callable[[str, tuple[Any, ...]], Any]") -> bytes:
    """Return the answer of `ask` to a question as bytes."""
    try:
        while True:
            data = _bytes({"value": ask(name, args)})
            if len(data) <= ANSWER_BYTES:
                return data
            args = _less(name, args)
    except Exception as error:          # 0: the loop has ended, there is no memory, or the answer is too large
        return _bytes({"error": (error.errno or 0) if isinstance(error, OSError) else 0})


def read_answer(name: str, args: "tuple[Any, ...]", data: bytes) -> "Any":
    """Return the value of an answer. Raises NoAnswerError if there is none, and OSError if a trace cannot begin."""
    try:
        found = _parsed(data.decode())
        _checked(type(found) is dict)
        if "value" in found:
            return (OF_DELAYS if (name, args) == ("hot", ("delays",)) else VALUES[name])(found["value"])
        errno = number(ERRNO_MAX)(found.get("error", 0))
    except ValueError:
        raise NoAnswerError from None
    if errno == 0 or name != "trace_begin":
        raise NoAnswerError
    raise OSError(errno, "another worker cannot begin the trace")


def _less(name: str, args: "tuple[Any, ...]") -> "tuple[Any, ...]":
    """Return the arguments for half of the rows. Raises NoAnswerError if there is no smaller answer."""
    if name not in ("sessions", "subscriptions") or args[-1] < 2:
        raise NoAnswerError
    return *args[:-1], args[-1] // 2


def _bytes(value: "Any") -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_encoded).encode()


def _encoded(value: object) -> str:
    assert isinstance(value, bytes)
    return b2a_base64(value, newline=False).decode()


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _parsed(found: str) -> "Any":
    try:
        return json.loads(found, parse_constant=_no_constant)
    except RecursionError:              # of nested lists
        raise ValueError("nested too deep") from None
