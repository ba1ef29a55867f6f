"""All workers as one engine: what the control topics, the HTTP API and the dashboard ask an engine for, of the workers
together. Whichever worker is asked answers for all (docs/adr/0031).

Statistics are sums in memory that all workers map, so they need no other worker. Lists and commands ask the others. A
worker that is silent for AWAY_MS is not asked: no client waits for one that is stopped.

In a cluster, statistics are those of the workers of one node. Lists and commands ask the workers of all nodes, over the
network (mosq/cluster/questions).
"""

from mosq.records import HotName, HotNames, SessionSlice, SlowSlice, SubscriptionListing
from mosq.server.workers.memory import Memory
from mosq.server.workers.traces import TRACES, Elsewhere

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.cluster.questions.asker import Asker
    from mosq.engine import Engine
    from mosq.records import SessionDetail, WholeFigures
    from mosq.server.workers.asking import Asking

AWAY_MS = 2000                  # a worker writes its figures twice a second
CURSOR_BITS = 32                # of one worker's cursor; the bits above name the worker


class Others:
    """Other workers that are asked in one way. `silent` returns the places of those that are not asked now."""

    def __init__(self, asking: "Asking | Asker", silent: "Callable[[], list[int]]") -> None:
        self._asking, self._silent = asking, silent
        self._unanswered: set[int] = set()      # places of the workers that did not answer the last question to them

    def away(self) -> list[int]:
        """Return the numbers of the workers that are not asked now, or did not answer the last question."""
        return sorted(place + 1 for place in self._unanswered.union(self._silent()))

    def ask(self, name: str, *args: "Any") -> "dict[int, Any]":
        """Return the answers of those that answer, by place."""
        silent = self._silent()
        return self._ask([place for place in range(self._asking.n) if place != self._asking.place
                          and place not in silent], name, *args)

    def ask_one(self, place: int, name: str, *args: "Any") -> "Any":
        """Return the answer of one of them; None if there is none."""
        return self._ask([place], name, *args).get(place) if place not in self._silent() else None

    def _ask(self, places: "list[int]", name: str, *args: "Any") -> "dict[int, Any]":
        found = self._asking.ask(places, name, *args)
        self._unanswered.difference_update(found)
        self._unanswered.update(place for place in places if place not in found)
        return found


class Whole:
    """The engines of all workers. Everything that is not declared here is the own engine's."""

    cursor_max = (1 << CURSOR_BITS + 8) - 1

    def __init__(self, engine: "Engine", asking: "Asking", wake: "Callable[[], None]",    # parameters: see below
                 own: "dict[str, Callable[[], Any]]", far: "Asker | None" = None) -> None:
        """`own`: what this process answers beside its engine: process (its age, processor time and memory), logins (its
        counts of logins), bridge_states. `wake` wakes the control thread. `far`: asks the workers of a cluster."""
        self._engine = engine
        process, memory = own["process"], Memory()
        self._own: dict[str, Callable[[], Any]] = {
            **own, "process": lambda: {**process(), "residentBytes": memory.bytes()}}
        self._place, self._n = asking.place, asking.n
        self._near = Others(asking, self._silent)       # those of this machine
        self._others = self._near if far is None else Others(far, far.away)
        self.overview: Callable[[], dict[str, Any] | None] = lambda: None   # the state of a cluster, if this is one
        self.elsewhere = Elsewhere(asking if far is None else far, wake, self._others.ask)

    def __getattr__(self, name: str) -> "Any":
        return getattr(self._engine, name)

    # ---- this worker answers the others

    def answer_question(self, name: str, args: "tuple[Any, ...]") -> "Any":
        """Answer a question of another worker, from this one alone."""
        if name in self._own:
            return self._own[name]()
        if name in TRACES:
            return self.elsewhere.arrived(name, args)
        if name == "write":
            self._engine.whole()
            return None
        if name in QUESTIONS:
            return getattr(self._engine, name)(*args)
        raise ValueError(name)

    def answer_far(self, name: str, args: "tuple[Any, ...]") -> "Any":
        """Answer a question of a worker of another machine. A walk over all sessions is one answer, because each may
        take a millisecond."""
        if name == "walk":
            from mosq.server.admin.hot import longest_queues

            clients, sums = longest_queues(self._engine)
            return SlowSlice(clients, 0, sums["queued"], sums["inflight"], sums["queue_bytes"])
        return self.answer_question(name, args)

    # ---- this worker asks the others

    def away(self) -> list[int]:
        """Return the numbers of the workers that lists and commands lack."""
        return self._others.away()

    def figures_away(self) -> list[int]:
        """Return the numbers of the workers that statistics lack: in a cluster, also those of other nodes."""
        return self._near.away()

    def _silent(self) -> list[int]:
        return [place for place, ms in enumerate(self._engine.whole().silent_ms) if ms is None or ms > AWAY_MS]

    def _each(self, others: Others, name: str, *args: "Any") -> "list[Any]":
        """Return the answers of all workers that answer, beginning with this one's."""
        own = self._own[name]() if name in self._own else getattr(self._engine, name)(*args)
        return [own, *others.ask(name, *args).values()]

    def _one(self, place: int, name: str, *args: "Any") -> "Any":
        """Return the answer of one worker; None if there is none."""
        if place == self._place:
            return getattr(self._engine, name)(*args)
        return self._others.ask_one(place, name, *args) if place < self._n else None

    def _at(self, place: int) -> "dict[str, Any]":
        """Return what a row has about its worker: the number, and in a cluster the node."""
        found = self.overview()
        return {"worker": place + 1} if found is None else {"worker": place + 1, "node": found["workers"][place]}

    # ---- statistics

    def whole(self) -> "WholeFigures":
        """Return the sums as of now."""
        self._near.ask("write")
        return self._engine.whole()

    def stats(self) -> dict[str, int]:
        return self.whole().stats

    def listener_drops(self) -> dict[str, dict[str, int]]:
        return self.whole().listener_drops

    def observed(self) -> "dict[str, Any] | None":
        return self.whole().observed

    def process(self) -> "dict[str, Any]":
        """Return the age of the broker in seconds, the processor time of all processes that it has had, and the memory
        of the workers that answer, in which a shared page counts once."""
        figures = self._engine.whole()
        return {"uptime": figures.uptime_ms // 1000, "cpuSeconds": figures.cpu_us / 1e6,
                "residentBytes": sum(one["residentBytes"] for one in self._each(self._near, "process"))}

    def logins(self) -> dict[str, int]:
        """Return the sums of the counts of logins. Those of failures also have what ended processes have counted."""
        failed, refused = self.whole().logins
        return {**_sums(self._each(self._near, "logins")), "failed": failed, "refused": refused}

    def streams(self) -> dict[str, dict[str, int]]:
        """Return the gauges of streams: each worker answers with the sums, and only the first one knows the parts that
        no worker writes."""
        others = self._near.ask("streams").values()      # they write their figures first
        found = self._engine.streams()
        for streams in others:
            found = {**streams, **found}
        return found

    def bridge_states(self) -> "list[dict[str, Any]]":
        """Return the states of the bridges of all workers that answer, by name."""
        found = [one for states in self._each(self._others, "bridge_states") for one in states]
        return sorted(found, key=lambda one: str(one["name"]))

    def drop_examples(self) -> "dict[str, dict[str, Any]]":
        found: dict[str, dict[str, Any]] = {}
        for examples in self._each(self._near, "drop_examples"):
            for reason, example in examples.items():
                if reason not in found or example["time"] > found[reason]["time"]:
                    found[reason] = example
        return found

    def link_figures(self) -> list[dict[str, int]]:
        """Return the figures of all links, with the numbers of both workers."""
        answers = {self._place: self._engine.link_figures(), **self._others.ask("link_figures")}
        return [{"from": place + 1, "to": link["place"] + 1, **link}
                for place, links in sorted(answers.items()) for link in links]

    # ---- clients

    def kick(self, client_id: str) -> bool:
        return self._engine.kick(client_id) or any(self._others.ask("kick", client_id).values())

    def session(self, client_id: str, skip: int = 0) -> "SessionDetail | None":
        found = {self._place: self._engine.session(client_id, skip)}
        if found[self._place] is None:
            found = self._others.ask("session", client_id, skip)
        for place, detail in found.items():
            if detail is not None:
                return detail._replace(session={**detail.session, **self._at(place)})
        return None

    def clients(self) -> "list[dict[str, Any]]":
        return [one for clients in self._each(self._near, "clients") for one in clients]

    def sessions(self, cursor: int = 0, most: int = 1000) -> SessionSlice:
        place, cursor = divmod(cursor, 1 << CURSOR_BITS)
        part = self._one(place, "sessions", cursor, most) or SessionSlice([], 0)
        at = self._at(place)
        return SessionSlice([{**row, **at} for row in part.sessions], self._next(place, part.cursor))

    def slow(self, position: int = 0, limits: tuple[int, int, int, int] = (0, 0, 0, 0)) -> SlowSlice:
        place, position = divmod(position, 1 << CURSOR_BITS)
        is_far = self._others is not self._near and place != self._place
        part = (self._one(place, "walk") if is_far else self._one(place, "slow", position, limits)) \
            or SlowSlice([], 0, 0, 0, 0)
        return part._replace(cursor=self._next(place, part.cursor))

    def _next(self, place: int, cursor: int) -> int:
        """Return the cursor behind a slice: in the same worker, or the begin of the next one; 0: there is none."""
        if cursor == 0:
            place += 1
        return (place << CURSOR_BITS) + cursor if place < self._n else 0

    def subscriptions(self, most: int = 100_000) -> SubscriptionListing:
        listings = self._each(self._others, "subscriptions", most)
        rows = [row for listing in listings for row in listing.rows]
        return SubscriptionListing(rows[:most], sum(one.left_out for one in listings) + max(0, len(rows) - most))

    def hot(self, what: str) -> HotNames | None:
        return merged([one for one in self._each(self._others, "hot", what) if one is not None], what == "topics")


# what a worker answers to the others from its engine; mosq/cluster/questions/forms.py has those for other machines
QUESTIONS = frozenset(("clients", "drop_examples", "hot", "kick", "link_figures", "session", "sessions", "slow",
                       "streams", "subscriptions"))


def _sums(found: "list[dict[str, int]]") -> dict[str, int]:
    sums: dict[str, int] = {}
    for one in found:
        for name, value in one.items():
            sums[name] = sums.get(name, 0) + value
    return sums


def merged(found: list[HotNames], at_many: bool) -> HotNames | None:
    """Return the sketches of all workers as one. `at_many`: a name may be at several workers, as a topic may be. Then a
    name that one of them lacks may have that one's least count more."""
    if not found:
        return None
    join = sum if at_many else max
    first, before = ([one.least[i] for one in found] for i in range(2))
    return HotNames(found[0].period, max(one.window_us for one in found), (join(first), join(before)),
                    (_window([one.windows[0] for one in found], first, at_many),
                     _window([one.windows[1] for one in found], before, at_many)))


def _window(windows: list[list[HotName]], least: list[int], at_many: bool) -> list[HotName]:
    if not at_many:
        return [one for window in windows for one in window]
    found: dict[Any, HotName] = {}
    missing: dict[Any, int] = {}
    for window, fewest in zip(windows, least, strict=True):
        for one in window:
            before = found.get(one.key)
            if before is not None:
                one = one._replace(total=before.total + one.total, error=before.error + one.error,
                                   bytes=before.bytes + one.bytes)
            found[one.key] = one
            missing[one.key] = missing.get(one.key, sum(least)) - fewest
    return [one._replace(total=one.total + missing[key], error=one.error + missing[key]) for key, one in found.items()]
