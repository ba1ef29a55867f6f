"""SIGUSR2: prints the subscriptions as a tree in Mosquitto's form: two blanks for each level, and after each filter its
subscribers.

        a
          +
            b (s1, 1)        client s1, QoS 1

The shared subscriptions follow: after each filter its groups with their members, `(group: client, qos)`.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mosq.records import SubscriptionRow

BLOCK_LINES = 200
_CONTROL = dict.fromkeys((*range(32), 127, *range(128, 160), 0x2028, 0x2029), "?")


class _Node:
    __slots__ = ("below", "clients")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.clients: list[str] = []


def tree_lines(rows: "Iterable[SubscriptionRow]", more: int = 0) -> "Iterator[str]":
    """Yield the text in pieces of whole lines. `more`: number of subscriptions that are not among the rows."""
    plain, shared = _Node(), _Node()
    for row in rows:
        client, text, qos = row.client_id, row.filter, row.qos
        parts = text.split("/", 2)
        if parts[0] == "$share" and len(parts) == 3:
            _add(shared, parts[2], f" ({parts[1]}: {client}, {qos})")
        else:
            _add(plain, text, f" ({client}, {qos})")
    block: list[str] = []
    for line in (*_lines(plain), *_lines(shared), *([f"... and {more} more"] if more else [])):
        block.append(line.translate(_CONTROL) if not line.isprintable() else line)
        if len(block) == BLOCK_LINES:
            yield "\n".join(block) + "\n"
            block = []
    if block:
        yield "\n".join(block) + "\n"


def _add(root: _Node, text: str, subscriber: str) -> None:
    # Mosquitto's trees begin with "" for ordinary topics, and with the `$` name for the others.
    node = root.below.setdefault(text.split("/", 1)[0] if text.startswith("$") else "", _Node())
    for level in text.split("/"):
        node = node.below.setdefault(level, _Node())
    node.clients.append(subscriber)


def _lines(root: _Node) -> "Iterator[str]":
    yield " " * 4
    waiting = [(6, name, node) for name, node in sorted(root.below.items(), reverse=True)]
    while waiting:
        blanks, name, node = waiting.pop()
        yield f"{' ' * blanks}{name}{''.join(sorted(node.clients))}"
        waiting += [(blanks + 2, below, one) for below, one in sorted(node.below.items(), reverse=True)]
