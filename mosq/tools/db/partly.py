"""Decide about QoS 2 messages that a part of the workers had delivered when the number of workers changes.

A worker keeps a message with its identity until all workers that need it have it; a worker that has delivered it keeps
the identity with the deliveries. Such an identity holds for all sessions of a worker, and the sessions move to others.
So the question is answered once, before: if each worker with a matching subscription has delivered the message, it is
done. Otherwise it is published again, and the sessions that have it get it twice.
"""

from typing import TYPE_CHECKING, Any

from mosq._core import filter_fits, worker_place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SHARE = b"$share/"
PARTS = 1 << 16


class Partly:
    """A QoS 2 message with an identity, in an inbox, or a will. `again`: it is published again; `began`: a part has
    it."""

    __slots__ = ("again", "began", "identity", "local_done", "retain", "topic")

    def __init__(self, f: dict[Any, Any]) -> None:
        self.identity, self.local_done = f["identity"], f["local_done"]
        self.topic, self.retain = f["topic"], f["retain"]
        self.again, self.began = True, False


class Links:
    """Hold the part of a worker's store that belongs to its links."""

    def __init__(self) -> None:
        self.log = 0
        # log, identity and part of messages of others that it has delivered: part 0 for plain subscribers
        self.arrived: set[tuple[int, int, int]] = set()
        self.gone: set[tuple[int, int]] = set()         # log and identity of those that all workers had
        self.choices: dict[tuple[int, int], int] = {}   # identity and part: the worker that was chosen for a group
        self.open: dict[tuple[int, int], Partly] = {}   # its own messages: by session and packet id
        self.wills: dict[int, Partly] = {}              # that it has sent to others: by number
        self._exact: dict[bytes, set[bytes]] = {}       # filter: its groups; b"": without a group
        self._wild: list[tuple[bytes, bytes]] = []      # group and filter

    def learn(self, filters: "Iterable[bytes]") -> None:
        """Note the filters of all sessions of this worker."""
        for whole in dict.fromkeys(filters):
            group, filter = b"", whole
            if whole.startswith(SHARE):
                group, _, filter = whole[len(SHARE):].partition(b"/")
            if b"+" in filter or b"#" in filter:
                self._wild.append((group, filter))
            else:
                self._exact.setdefault(filter, set()).add(group)

    def matching(self, topic: bytes) -> "Iterator[tuple[bytes, bytes]]":
        """Yield group and filter of each subscription that matches."""
        for group in self._exact.get(topic, ()):
            yield group, topic
        for group, filter in self._wild:
            if filter_fits(filter, topic):
                yield group, filter


def part_of(key: bytes, group: bytes, filter: bytes) -> int:
    """Return the part of a shared group: part_of of cext/broker/links/outward.pyx."""
    return worker_place(key, b"%b%b/%b" % (SHARE, group, filter), PARTS) | 1 if key else 0


def again(partly: Partly, place: int, workers: "Mapping[int, Links]", owner: int, key: bytes) -> bool:
    """Return whether a message of the worker at `place` must be published again; set `began`. `owner`: the place of the
    worker that keeps the topic's retained message; `key`: of the workers."""
    own = workers[place]

    def has(i: int, part: int) -> bool:
        one = workers.get(i)
        return one is not None and ((own.log, partly.identity, part) in one.arrived
                                    or (own.log, partly.identity) in one.gone)

    have = {i for i in workers if i != place and has(i, 0)}
    if partly.local_done:
        have.add(place)
    groups = {found for one in workers.values() for found in one.matching(partly.topic) if found[0]}
    parts = {found: part_of(key, *found) for found in groups}
    partly.began = bool(have) or any(has(i, part) for i in workers for part in parts.values())
    if not partly.began or (partly.retain and owner not in have):
        return True
    if any(not group for i, one in workers.items() if i not in have for group, _ in one.matching(partly.topic)):
        return True
    for part in parts.values():
        chosen = own.choices.get((partly.identity, part))
        if not any(has(i, part) for i in workers) and (not partly.local_done or chosen not in (None, place)):
            return True                 # without a choice, a member of its own worker has it
    return False
