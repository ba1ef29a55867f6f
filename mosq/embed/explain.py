"""Queries the subscription index of a running broker for `mosq index explain TOPIC` and `Broker.explain`. docs/index.md
describes the answer, cext/topic/explain.pyx makes it, and MQTT carries it:

  PUBLISH $CONTROL/mosq/index/v1 (payload: the topic)  ->  PUBLISH $CONTROL/mosq/index/v1/response (JSON), to us alone

Knows the conversation and how to print an answer; neither the index nor the command line.
"""

import json
import os
import socket

from mosq.embed import wire
from mosq.embed.connection import Connection
from mosq.embed.errors import BrokerError, BrokerStopped, Disconnected, PublishError, SubscriptionClosed
from mosq.embed.message import Message, Properties
from mosq.embed.protocol import Protocol
from mosq.embed.subscription import deadline, drive
from mosq.reason_codes import NOT_AUTHORIZED, PAYLOAD_FORMAT_INVALID
from mosq.tools.table import shown, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from mosq.embed.connection import Steps

REQUEST = "$CONTROL/mosq/index/v1"
RESPONSE = "$CONTROL/mosq/index/v1/response"
TIMEOUT_S = 3.0


class NoAnswerError(Exception):
    """The broker gave no answer; the text says what to do."""


# ---------------------------------------------------------------- conversation

def explain(connection: Connection, topic: str) -> "Steps[dict[str, Any]]":
    """Run the conversation. Raises ValueError for an invalid topic, PublishError, BrokerStopped."""
    check(topic)
    token = os.urandom(8)
    request = Message(REQUEST, topic.encode(), min(1, connection.protocol.max_qos),
                      properties=Properties(correlation_data=token))
    try:
        yield from connection.publish(request)
        while True:
            message = yield from connection.next_message()
            if message.topic == RESPONSE and message.properties.correlation_data == token:
                answer: dict[str, Any] = json.loads(message.payload)
                return answer
    except SubscriptionClosed:
        raise BrokerStopped("the broker has closed the connection") from None
    except PublishError as refusal:
        if refusal.reason != PAYLOAD_FORMAT_INVALID:
            raise
        raise ValueError(f"topic {topic[:80]!r}: expected at most 200 levels, no control characters") from None


def check(topic: str) -> None:
    """Raise ValueError for an invalid topic. The broker itself checks levels and control characters."""
    wire.text(wire.topic_name(topic, "topic"), "topic")


class TcpConnection(Connection):
    """A TCP connection to a broker of another process."""

    def __init__(self, host: str, port: int, username: str | None, password: str | None, client_id: str | None) -> None:
        """Connect. Without a client id it is a random one. Raises OSError."""
        self.client_id = client_id or f"mosq-index-{os.urandom(6).hex()}"
        self.protocol = Protocol(self.client_id, 1, username, password)
        self._has_other_workers = bool
        self.closed = False
        self.socket = socket.create_connection((host, port), TIMEOUT_S)
        self.socket.setblocking(False)


def query(host: str, port: int, topic: str, username: str | None = None, password: str | None = None,
          client_id: str | None = None) -> "dict[str, Any]":
    """Query the broker at an address. Raises NoAnswerError, ValueError for an invalid topic."""
    check(topic)
    where = f"{host} port {port}"
    try:
        connection = TcpConnection(host, port, username, password, client_id)
    except TimeoutError:
        raise NoAnswerError(f"{where} does not answer. Give the broker's address with -h HOST and -p PORT.") from None
    except OSError as error:
        raise NoAnswerError(f"There is no broker at {where}: {error.strerror or error}. Start it, or give its address "
                            "with -h HOST and -p PORT.") from None
    try:
        return _converse(connection, topic, where)
    finally:
        connection.close()


def _converse(connection: Connection, topic: str, where: str) -> "dict[str, Any]":
    give_up = deadline(TIMEOUT_S)
    try:
        drive(connection.open(), connection, give_up)
    except Disconnected as refusal:
        raise NoAnswerError(f"The broker at {where} refused the connection: {refusal}. It must allow MQTT 5; give a "
                            "user with -u USER and -P PASSWORD.") from None
    except (BrokerError, TimeoutError, wire.Malformed):
        raise NoAnswerError(f"The server at {where} does not speak MQTT 5. Give a mosq broker's address with -h HOST "
                            "and -p PORT.") from None
    try:
        return drive(explain(connection, topic), connection, give_up)
    except TimeoutError:
        raise NoAnswerError(f"The broker at {where} has not answered within {TIMEOUT_S:.0f} s. Is it a mosq broker "
                            "that has this command, and may your user ask? (docs/index.md, Rights)") from None
    except PublishError as refusal:
        if refusal.reason == NOT_AUTHORIZED:
            raise NoAnswerError(f"The broker at {where} does not allow this query. Add `topic write {REQUEST}` to "
                                "its acl_file for your user (-u, -P). Without an acl_file, set `control_loopback true` "
                                "if no proxy on its machine connects to it, and run the command there. A broker other "
                                "than mosq refuses in the same way.") from None
        raise NoAnswerError(f"The broker at {where} refused: {refusal}.") from None
    except (BrokerError, wire.Malformed) as error:
        raise NoAnswerError(f"The broker at {where} ended the conversation: {error}.") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise NoAnswerError(f"The answer of the broker at {where} is not JSON. Is it a mosq broker?") from None


# ---------------------------------------------------------------- output

def report(answer: "dict[str, Any]") -> str:
    """Return the answer as text. Raises NoAnswerError if it has another form."""
    try:
        return "\n".join(_lines(answer))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise NoAnswerError("The answer has an unexpected form. Is the broker a mosq of the same version?"
                            ) from None


def _lines(answer: "dict[str, Any]") -> "Iterable[str]":
    totals = answer["totals"]
    filters = answer["filters"]
    rows = [(shown(f["filter"]), path(f), str(int(f["subscribers"])), ", ".join(workers(f)) or "-",
             ", ".join(map(group, f["groups"])) or "-") for f in filters]
    routes = sum(len(workers(f)) for f in filters)
    if rows:
        columns = (0, 1, 2, 3, 4) if routes else (0, 1, 2, 4)       # a broker with one process has no routes
        yield from table([tuple(row[column] for column in columns)
                          for row in (("FILTER", "PATH", "SUBSCRIBERS", "ROUTES", "GROUPS"), *rows)])
        if answer["truncated"]:
            yield f"... and {count(totals['filters'] - len(rows), 'filter')} more that did not fit into the answer"
        yield ""
    entries = count(totals["subscribers"] - routes, "subscriber")       # the total includes the routes
    if routes:
        entries += f"{' or route' if answer['truncated'] else ''} and {count(routes, 'route')}"
    yield (f"{count(totals['filters'], 'filter')}: {entries} in {count(totals['lists'], 'list')}, "
           f"{count(totals['groups'], 'shared group')}")
    yield f"Cost (index {shown(answer['index'])}): {cost(answer['cost'])}"
    if "worker" in answer:
        yield (f"Worker {int(answer['worker'])} has answered: subscribers and members are its own, routes lead to the "
               "other workers.")


def path(found: "dict[str, Any]") -> str:
    """Describe the path through the index that found a filter."""
    kind = found["path"]
    if kind == "exact":
        letter = "" if found["letter"] is None else f", letter {shown(found['letter'])}"
        return f"exact{letter}, {count(found['links'], 'link')}"
    if kind == "tree":
        children = ", ".join(f"{int(found[how])} {how}" for how in ("scanned", "hashed") if found[how])
        return (f"tree {' / '.join(map(shown, found['edges']))} ({count(found['nodes'], 'node')}"
                f"{', ' if children else ''}{children})")
    return shown(kind)


def workers(found: "dict[str, Any]") -> list[str]:
    """Return the names of the workers to which there is a route, because they have subscribers."""
    return [f"worker {int(one['worker'])}" for one in found.get("routes", ())]


def group(found: "dict[str, Any]") -> str:
    members = ", ".join([count(found["members"], "member"), *(f"route to {name}" for name in workers(found))])
    return f"{shown(found['name'])} ({shown(found['strategy'])}, {members})"


def cost(found: "dict[str, Any]") -> str:
    """Describe the cost of a look-up."""
    parts = [f"{count(found['hashes'], 'hash', 'es')} of {count(found['bytes_hashed'], 'byte')}",
             f"{count(found['links'], 'link')} of hash chains", f"{count(found['nodes'], 'node')} of the tree",
             f"{count(found['scanned'], 'child', 'ren')} scanned", f"{count(found['bytes_compared'], 'byte')} compared"]
    if found["filters_compared"]:
        parts.append(f"{count(found['filters_compared'], 'filter')} tried")
    return ", ".join(parts)


def count(number: int, what: str, plural: str = "s") -> str:
    """Return a number with its noun, such as "2 nodes"."""
    return f"{int(number)} {what}{'' if number == 1 else plural}"
