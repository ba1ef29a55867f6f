"""Figures of the data plane that a page asks for while it shows them: drops with examples, histograms, streams.

Equal questions of several pages share one reading for SHARED_S, so any number of pages costs the data plane one control
request of each kind in that time.
"""

import asyncio
import time
from typing import Generic, TypeVar

from mosq.server.admin.commands import Fields
from mosq.server.admin.control import Requester
from mosq.server.http.buckets import BUCKETS, until_s
from mosq.server.http.gate import CLIENT_ID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Executor
    from typing import Any

    from mosq.server.admin.inspect import Inspection
    from mosq.server.http.dashboard.api import Broker
    from mosq.server.http.dashboard.rights import Rights

    Command = Callable[[Requester, Fields], dict[str, Any]]

SHARED_S = 1.0
UNTIL_S = [until_s(bucket) for bucket in range(BUCKETS - 1)]    # the last bucket has no end
HOT_MAX = 100
# The broker checks rights of topics only. So the dashboard shows a prefix to a user who may read this topic below it.
BELOW = "/a/b/c/d"
T = TypeVar("T")


class Shared(Generic[T]):
    """One reading for all pages that ask within SHARED_S."""

    def __init__(self, read: "Callable[[], T]", thread: "Executor") -> None:
        self._read, self._thread = read, thread
        self._lock = asyncio.Lock()
        self._until_s = 0.0
        self._found: T

    async def get(self) -> T:
        """Return what was read at most SHARED_S ago. Raises RuntimeError if the broker does not run."""
        async with self._lock:
            if time.monotonic() >= self._until_s:
                self._found = await asyncio.get_running_loop().run_in_executor(self._thread, self._read)
                self._until_s = time.monotonic() + SHARED_S
            return self._found


class Figures:
    """The figures of one broker."""

    def __init__(self, broker: "Broker", inspection: "Inspection", thread: "Executor") -> None:
        self._config = broker.config
        self._hot = Shared(_answer(inspection.hot, limit=HOT_MAX), thread)
        self._drops = Shared(_answer(inspection.list_drops), thread)
        self._observed = Shared(broker.engine.observed, thread)
        self._streams = Shared(broker.engine.streams, thread)

    async def drops(self, rights: "Rights") -> "dict[str, Any]":
        """Return the reasons of drops with an example each. The topic of an example is None if the user may not read
        it; the right to read a topic that is cut cannot be checked."""
        rows = []
        for row in (await self._drops.get())["drops"]:
            topic = row.get("topic")
            if topic:
                may_show = not rights.has_rules() if row.get("topicCut") else await rights.may_read(topic)
                row = row if may_show else {**row, "topic": None}
            rows.append(row)
        return {"drops": rows}

    async def hot(self, limit: int, rights: "Rights") -> "dict[str, Any]":
        """Return hot topics, prefixes and clients, and slow clients. Topics and prefixes that the user may not read
        are missing."""
        found = await self._hot.get()
        topics = [row for row in found["topics"] if await _may_see(rights, row)]
        prefixes = [row for row in found["prefixes"] if await rights.may_read(row["prefix"] + BELOW)]
        return {**found, **{name: found[name][:limit] for name in ("publishers", "receivers", "slow")},
                "topics": topics[:limit], "prefixes": prefixes[:limit]}

    async def latency(self) -> "dict[str, Any]":
        """Return the histograms; none without `observe_messages`."""
        observed = await self._observed.get()
        found = {} if observed is None else {
            name: _trimmed(*value) for name, value in observed.items() if isinstance(value, tuple)}
        return {"period": self._config.observe_messages, "untilS": UNTIL_S, "histograms": found}

    async def streams(self) -> "list[dict[str, Any]]":
        """Return the streams: the line that declares each, and its gauges."""
        lines = {line.split()[0]: line for line in self._config.stream}
        gauges: Mapping[str, Mapping[str, int]] = await self._streams.get()
        names = [*lines, *(name for name in gauges if name not in lines)]
        return [{"name": name, "line": lines.get(name), **gauges.get(name, {})} for name in names]


def _answer(command: "Command", **fields: object) -> "Callable[[], dict[str, Any]]":
    """Return a function that sends an admin request."""
    return lambda: command(Requester(CLIENT_ID, None, "", 0), Fields(fields))


async def _may_see(rights: "Rights", row: "dict[str, Any]") -> bool:
    """Return whether the user may read a topic; for a topic that is cut, that cannot be checked."""
    return not rights.has_rules() if "topic_bytes" in row else await rights.may_read(row["topic"])


def _trimmed(count: int, sum_ns: int, numbers: "list[int]") -> "dict[str, Any]":
    """Return a histogram without the empty buckets at both ends."""
    used = [i for i, number in enumerate(numbers) if number]
    first, end = (used[0], used[-1] + 1) if used else (0, 0)
    return {"count": count, "sumS": sum_ns / 1e9, "first": first, "numbers": numbers[first:end]}
