"""Decide about QoS 2 messages that a part of the workers had delivered when the number of workers changes.

A worker keeps a message with its identity until all workers that need it have it; a worker that has delivered it keeps
the identity with the deliveries. Such an identity holds for all sessions of a worker, and the sessions move to others.
So the question is answered once, before: if each worker with a matching subscription has delivered the message, it is
done. Otherwise it is published again, and the sessions that have it get it twice.
"""

from typing import TYPE_CHECKING, Any

from mosq._core import filter_fits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SHARE = b"$share/"


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
        self.arrived: set[tuple[int, int]] = set()      # log and identity of messages of others that it has delivered
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


def again(partly: Partly, place: int, workers: "Mapping[int, Links]", owner: int) -> bool:
    """Return whether a message of the worker at `place` must be published again; set `began`. `owner`: the place of the
    worker that keeps the topic's retained message."""
    log = workers[place].log
    have = {i for i, one in workers.items() if i != place and (log, partly.identity) in one.arrived}
    if partly.local_done:
        have.add(place)
    partly.began = bool(have)
    if not have or (partly.retain and owner not in have):
        return True
    served: set[tuple[bytes, bytes]] = set()        # shared groups, of which one worker gets the message
    missing: set[tuple[bytes, bytes]] = set()
    for i, one in workers.items():
        for group, filter in one.matching(partly.topic):
            if group:
                (served if i in have else missing).add((group, filter))
            elif i not in have:
                return True
    return bool(missing - served)
