"""Hold what a persistence plugin has kept, as it restores it: the store's beginning, or what the plugin need not be
sent.

`take` gets each part with the field names of the shim's struct Stored, and returns Mosquitto's result. An import reads
the content by `chunks` and `message_at`, as that of a file of Mosquitto. Parts that Mosquitto would refuse are refused
here; what MQTT does not allow is left to the import. Memory: all that the plugin restores.
"""

from typing import TYPE_CHECKING, Any

from mosq.tools.db.mosquitto_file import Client, ClientMessage, Message, Retain, Subscription, Will
from mosq.tools.db.mosquitto_format import IN, OUT, QOS0, QUEUED, SUB_ID_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mosq.tools.db.mosquitto_file import Chunk

    Part = Any  # has the fields of struct Stored

# Mosquitto's events about the state of a broker
BASE_ADD, BASE_DELETE, RETAIN_SET, RETAIN_DELETE, CLIENT_ADD, CLIENT_DELETE, CLIENT_UPDATE = range(15, 22)
SUB_ADD, SUB_DELETE, MESSAGE_ADD, MESSAGE_DELETE, MESSAGE_UPDATE = range(22, 27)
WILL_ADD, WILL_DELETE = 29, 30
MESSAGE_CLEAR = 31  # a call of a plugin, and no event
SUCCESS, INVALID, NOT_FOUND = 0, 3, 6
ALL = 2  # both directions
PAYLOAD_MAX = 268_435_455
NAME_BYTES_MAX = 65_535
TIME_MAX_S = 1 << 40
REFUSED_LINES = 10  # lines about refused parts; the others are counted
NAMES = {BASE_ADD: "a stored message", RETAIN_SET: "a retained message", CLIENT_ADD: "a session",
         CLIENT_UPDATE: "a change of a session", SUB_ADD: "a subscription", MESSAGE_ADD: "a delivery",
         MESSAGE_UPDATE: "a change of a delivery", WILL_ADD: "a will"}


def shown(name: bytes) -> str:
    return repr(name[:80].decode("utf-8", "backslashreplace"))


class KeptClient:
    """A session with its subscriptions and its queue, in the order in which the plugin has added them."""

    __slots__ = ("client", "facts", "messages", "subscriptions")

    def __init__(self) -> None:
        self.client: Client
        self.facts: tuple[Any, ...] = ()
        self.subscriptions: dict[bytes, tuple[int, int]] = {}  # options, identifier
        self.messages: list[tuple[ClientMessage, int]] = []  # with the number that the plugin has for it in the session


class Kept:
    """Hold the content of one plugin. It has the methods of MosquittoFile that an import uses."""

    size = 1  # progress is not shown

    def __init__(self, path: str, report: "Callable[[str], None]" = lambda line: None) -> None:
        self.path, self.format, self.warnings = path, "plugin", list[str]()
        self._report, self.refused = report, 0
        self.clients: dict[bytes, KeptClient] = {}
        self.messages: dict[int, Message] = {}
        self.retained: dict[bytes, int] = {}  # topic: id of the message
        self.wills: dict[bytes, Will] = {}
        self._does = {
            BASE_ADD: self._message, BASE_DELETE: self._message_gone, RETAIN_SET: self._retain,
            RETAIN_DELETE: self._retain_gone, CLIENT_ADD: self._client, CLIENT_UPDATE: self._client_changed,
            CLIENT_DELETE: self._client_gone, SUB_ADD: self._sub, SUB_DELETE: self._sub_gone,
            MESSAGE_ADD: self._queue, MESSAGE_DELETE: self._queue_gone, MESSAGE_UPDATE: self._queue_changed,
            MESSAGE_CLEAR: self._clear, WILL_ADD: self._will,
        }

    def __bool__(self) -> bool:
        return bool(self.clients or self.retained or self.wills)

    def take(self, event: int, part: "Part") -> int:
        """Take one part; return the result for the plugin."""
        does = self._does.get(event)
        names = (part.client_id, part.username, part.topic)
        if does is None or any(name is not None and len(name) > NAME_BYTES_MAX for name in names):
            result = INVALID
        else:
            result = does(part)
        if result != SUCCESS:
            self._refuse(event, part, result)
        return result

    def _refuse(self, event: int, part: "Part", result: int) -> None:
        self.refused += 1
        if self.refused > REFUSED_LINES:
            return
        of = [f"{what} {shown(value)}" for what, value in (("client", part.client_id), ("topic", part.topic)) if value]
        of += [f"store_id {part.store_id}"] if event in (BASE_ADD, RETAIN_SET, MESSAGE_ADD) else []
        why = ("its client or stored message is not there" if result == NOT_FOUND
               else "it is there already, or not valid")
        self._report(f"{self.path}: {NAMES.get(event, 'a part')} was not taken ({', '.join(of)}): {why}")

    def report_rest(self) -> None:
        """Report how many more parts were refused than lines were logged."""
        if self.refused > REFUSED_LINES:
            self._report(f"{self.path}: {self.refused - REFUSED_LINES} more parts were not taken")

    # -- what an import reads

    def where(self, place: int, text: str) -> str:
        return f"{self.path}: part {place}: {text}"

    def chunks(self, with_payload: bool = True) -> "Iterator[Chunk]":
        yield from self.messages.values()
        for one in self.clients.values():
            yield one.client
            for filter, (options, sub_id) in one.subscriptions.items():
                yield Subscription(one.client.offset, one.client.client_id, filter, options, sub_id)
            for message, _ in one.messages:
                yield message
        for id in self.retained.values():
            yield Retain(id, id)
        yield from self.wills.values()

    def message_at(self, offset: int) -> Message:
        return self.messages[offset]

    # -- one method for each kind of part

    def _client(self, part: "Part") -> int:
        if not part.client_id or part.client_id in self.clients:
            return INVALID
        self.clients[part.client_id] = KeptClient()
        return self._client_changed(part)

    def _client_changed(self, part: "Part") -> int:
        one = self.clients.get(part.client_id)
        if one is None:
            return NOT_FOUND
        ends_s = min(max(part.ends_s, 0), TIME_MAX_S)
        place = one.client.offset if one.facts else len(self.clients)
        one.client = Client(place, part.client_id, part.username, ends_s, part.expiry_s, 0, part.port)
        one.facts = (part.username, ends_s, part.expiry_s, part.will_due_s, part.will_delay_s, part.port)
        return SUCCESS

    def _client_gone(self, part: "Part") -> int:
        self.wills.pop(part.client_id, None)
        return NOT_FOUND if self.clients.pop(part.client_id, None) is None else SUCCESS

    def _sub(self, part: "Part") -> int:
        one = self.clients.get(part.client_id)
        if one is None:
            return NOT_FOUND
        one.subscriptions[part.topic] = part.options & 0x3F, part.identifier & SUB_ID_MAX
        return SUCCESS

    def _sub_gone(self, part: "Part") -> int:
        one = self.clients.get(part.client_id)
        if one is None:
            return NOT_FOUND
        one.subscriptions.pop(part.topic, None)
        return SUCCESS

    def _message(self, part: "Part") -> int:
        id = part.store_id
        if not part.topic or part.qos > 2 or part.data_n > PAYLOAD_MAX or id in self.messages:
            return INVALID
        self.messages[id] = Message(id, id, min(max(part.ends_s, 0), TIME_MAX_S), part.client_id or b"",
                                    part.username or b"", part.topic, part.qos, bool(part.retain), part.data_n,
                                    part.given_properties(), part.given_data(), part.port, part.pid)
        return SUCCESS

    def _message_gone(self, _part: "Part") -> int:
        return SUCCESS  # an import leaves out messages without a use

    def _retain(self, part: "Part") -> int:
        if part.store_id not in self.messages:
            return NOT_FOUND
        if self.messages[part.store_id].topic != part.topic:
            return INVALID
        self.retained[part.topic] = part.store_id
        return SUCCESS

    def _retain_gone(self, part: "Part") -> int:
        self.retained.pop(part.topic, None)
        return SUCCESS

    def _queue(self, part: "Part") -> int:
        one = self.clients.get(part.client_id)
        if one is None or part.store_id not in self.messages:
            return NOT_FOUND
        if part.direction not in (IN, OUT) or part.qos > 2 or not QOS0 <= part.state <= QUEUED:
            return INVALID
        one.messages.append((ClientMessage(part.store_id, part.store_id, part.client_id, part.pid, part.qos, part.state,
                                           bool(part.retain), bool(part.dup), part.direction,
                                           part.identifier & SUB_ID_MAX), part.cmsg_id))
        return SUCCESS

    def _queue_gone(self, part: "Part") -> int:
        one = self.clients.get(part.client_id)
        if one is None:
            return NOT_FOUND
        one.messages = [pair for pair in one.messages
                        if (pair[0].direction, pair[0].pid, pair[1]) != (part.direction, part.pid, part.cmsg_id)]
        return SUCCESS

    def _queue_changed(self, part: "Part") -> int:
        from dataclasses import replace

        one = self.clients.get(part.client_id)
        if one is None:
            return NOT_FOUND
        if not QOS0 <= part.state <= QUEUED:
            return INVALID
        for i, (message, number) in enumerate(one.messages):
            if (message.direction, message.pid, number) == (part.direction, part.pid, part.cmsg_id):
                one.messages[i] = replace(message, state=part.state), number
        return SUCCESS

    def _clear(self, part: "Part") -> int:
        one = self.clients.get(part.client_id)
        if one is None:
            return NOT_FOUND
        one.messages = [pair for pair in one.messages if part.direction not in (pair[0].direction, ALL)]
        return SUCCESS

    def _will(self, part: "Part") -> int:
        """Take a will, also of a client without a session: the broker sends that one when it starts."""
        if not part.topic or part.qos > 2 or part.data_n > PAYLOAD_MAX:
            return INVALID
        one = self.clients.get(part.client_id)
        _, _, _, due_s, delay_s, _ = one.facts if one is not None else (None, 0, 0, 0, 0, 0)
        self.wills[part.client_id] = Will(0, part.client_id, part.topic, part.given_data(), part.qos, bool(part.retain),
                                          part.given_properties(), due_s, delay_s)
        return SUCCESS
