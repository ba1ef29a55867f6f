"""The nodes that live, judged by the clock of this node alone. Knows no Redis and no clock: times come with each call.

A node increments its beat in Redis. Another node that has seen the same beat for `death_s` of its own monotonic time
takes it for dead. This holds only for time in which it could read:

- after a pause between two readings (`gap_s`: Redis was away, or this process was stopped), observation begins again;
- another server (a replica became the primary, or Redis was started again) may lack the last writes: observation begins
  again, and this node claims no worker at all until `death_s` later, when each node has had its lease to notice.
"""

from mosq.cluster.terms import Terms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Observer:
    """The beats of all nodes, as this node has seen them."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.source = ""                # identity of the server that answered last
        self._source_s = 0.0            # first answer of that server
        self._last_s = 0.0              # last answer
        self._seen: dict[str, tuple[str, float, float]] = {}    # name -> beat, when it was new, when the node was new

    def see(self, now_s: float, source: str, beats: "Mapping[str, str]") -> None:
        """Take the beats that were read. `now_s`: when the answer came; `source`: the server that sent it."""
        if source != self.source:
            self.source, self._source_s = source, now_s
            self._seen.clear()
        if self._is_gap(now_s):
            self._seen.clear()
        self._last_s = now_s
        seen = self._seen
        if len(seen) > len(beats):
            for name in [name for name in seen if name not in beats]:
                del seen[name]
        for name, beat in beats.items():
            last = seen.get(name)
            if last is None:
                seen[name] = beat, now_s, now_s
            elif last[0] != beat:
                seen[name] = beat, now_s, last[2]

    def _is_gap(self, now_s: float) -> bool:
        return now_s - self._last_s > self._terms.gap_s

    def dead(self, name: str) -> bool:
        """Return whether the beat of a node has not changed for too long, at the last reading."""
        seen = self._seen.get(name)
        return seen is not None and self._last_s - seen[1] >= self._terms.death_s

    def steady(self, name: str) -> bool:
        """Return whether a node has been seen for `death_s` at least, has given a sign of life since then, and is not
        dead. A node that has joined observes the others for so long, and starts no worker before. A dead node is new,
        too, when observation begins again."""
        seen = self._seen.get(name)
        return seen is not None and self._last_s - seen[2] >= self._terms.death_s and self.beats(name)

    def beats(self, name: str) -> bool:
        """Return whether a node has given a sign of life since it was first seen, and is not dead."""
        seen = self._seen.get(name)
        return seen is not None and seen[1] > seen[2] and not self.dead(name)

    def settled(self) -> bool:
        """Return whether the present server has answered for so long that claims are allowed."""
        return self._last_s - self._source_s >= self._terms.death_s
