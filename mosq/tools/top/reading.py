"""One look at a broker: the numbers of its head line, the clients, and the hot topics. Computes rates from two looks.
Knows the answers of `$CONTROL/mosq/broker/v1`, not how they came.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Data = dict[str, Any]

RATES = {"in": ("messages", "publish_in"), "out": ("messages", "publish_out"), "bytes_in": ("messages", "bytes_in"),
         "bytes_out": ("messages", "bytes_out"), "connections": ("clients", "connections")}


class Reading:
    """The numbers and rows of one turn. `stats`: data of getStats; `at_s`: its time by the monotonic clock."""

    def __init__(self, stats: "Data", at_s: float, before: "Reading | None" = None) -> None:
        self.stats, self.at_s = stats, at_s
        self.clients: list[Data] = []
        self.hot: Data | None = None
        self.is_whole = True                # the list has all clients of the broker
        self.is_cut = False                 # it has more clients than are kept
        self.rates: dict[str, float | None] = dict.fromkeys((*RATES, "cpu"))
        self.drops: dict[str, float] = {}   # messages per second by reason, largest first; only reasons above 0
        self.drops_rate: float | None = None
        if before is not None and at_s > before.at_s and self._is_later_than(before):
            self._compare(before)

    def _is_later_than(self, before: "Reading") -> bool:
        """Return whether both readings are of the same run of the broker: no counter has begun again."""
        return all(self.counter(*place) >= before.counter(*place) for place in RATES.values())

    def counter(self, group: str, name: str) -> int:
        """Return a number of getStats; 0 if the broker does not know it."""
        return int(self.stats.get(group, {}).get(name, 0))

    @property
    def process(self) -> "Data":
        """Return the data about the process; empty for a broker that does not report it."""
        found: Data = self.stats.get("process", {})
        return found

    def _compare(self, before: "Reading") -> None:
        seconds = self.at_s - before.at_s
        for name, place in RATES.items():
            self.rates[name] = (self.counter(*place) - before.counter(*place)) / seconds
        if "cpuSeconds" in self.process and "cpuSeconds" in before.process:
            self.rates["cpu"] = 100 * (self.process["cpuSeconds"] - before.process["cpuSeconds"]) / seconds
        now, earlier = self.stats.get("drops", {}), before.stats.get("drops", {})
        rates = {name: (value - earlier.get(name, 0)) / seconds for name, value in now.items()}
        self.drops = dict(sorted(((name, rate) for name, rate in rates.items() if rate > 0), key=lambda one: -one[1]))
        self.drops_rate = sum(self.drops.values())

    def take_hot(self, hot: "Data | None") -> None:
        """Take the answer of `hot`, and put the rates of hot clients into their rows."""
        self.hot = hot
        for place, name in (("publishers", "rateIn"), ("receivers", "rateOut")):
            known = {one["client_id"]: one["messages_per_second"] for one in (hot or {}).get(place, ())}
            for row in self.clients:
                row[name] = known.get(row["clientid"])
