"""Composes `/metrics` for Prometheus: the statistics of the data plane, bridges and logins, in the text format of
Prometheus or in OpenMetrics. Loaded only if a listener has `http_metrics true`. Knows neither routes nor access rules.

prometheus-client writes the formats and escapes label values. Nothing of it runs between two scrapes: the values are
collected from the broker when a scrape asks for them, and its own registry of the Python process is not used.
Cost of a scrape: nine control requests to the loop, and one more for each bridge.
"""

import resource
import time

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder

from mosq.server.admin.hot import Hot
from mosq.server.admin.inspect import own_process
from mosq.server.http.buckets import BUCKETS, PARTS, until_s
from mosq.server.http.metric_table import (
    CLUSTER,
    CLUSTER_COUNTS,
    COUNTER,
    DROPS,
    HISTOGRAMS,
    HOTTEST,
    LABELLED,
    LINK_COUNTERS,
    LINK_GAUGES,
    LOADS,
    PLAIN,
    QUEUES,
    REASONS,
    SLOWEST,
    STORE,
    STREAMS,
    TROUBLE,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from prometheus_client.metrics_core import Metric

    from mosq.engine import Engine

    Stats = Mapping[str, int]
    Histogram = tuple[int, int, list[int]]

BRIDGES_MAX = 200               # bridges with metrics of their own; mosq_bridges counts all
LISTENERS_MAX = 50              # listeners with drops of their own; OTHER has those of the others
OTHER = "other"                 # also the drops without a connected client


class Reading:
    """Holds what one scrape has read; scrapes at the same time share it. prometheus-client takes it for a
    registry."""

    def __init__(self, families: "Iterable[Metric]") -> None:
        self.families = list(families)
        self._texts: dict[str, bytes] = {}

    def collect(self) -> "list[Metric]":
        """Return the metrics."""
        return self.families

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in the format that the client accepts, and its content type."""
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):         # a version that is no number
            encode, content_type = choose_encoder("")
        if content_type not in self._texts:
            self._texts[content_type] = encode(self)
        return self._texts[content_type], content_type


class Metrics:
    """The metrics of one broker."""

    def __init__(self, version: str, has_store: "Callable[[], bool]", engine: "Engine",
                 bridges: "Callable[[], list[dict[str, Any]]]", logins: "Callable[[], dict[str, int]]",
                 hot: "Hot | None" = None, process: "Callable[[], dict[str, Any]]" = own_process) -> None:
        """`logins`: the counts of auth_backoff; empty if nothing checks passwords. `hot`: shared with others that ask
        the same. `process`: uptime, processor time and memory."""
        self._hot = Hot(lambda: engine) if hot is None else hot
        self.version, self.has_store = version, has_store
        self._engine, self._bridges, self._logins = engine, bridges, logins
        self._process = process
        self._started_s = time.time() - process()["uptime"] if hasattr(engine, "away") else time.time()

    def read(self) -> Reading:
        """Read everything. Raises RuntimeError if the loop does not run."""
        stats = self._engine.stats()
        return Reading([*of_process(self.version, self._started_s, self._process()),
                        *of_workers(self._engine), *of_cluster(self._engine), *of_stats(stats, self.has_store()),
                        *of_drops(self._engine.listener_drops()),
                        *of_observed(self._engine.observed()), *of_streams(self._engine.streams()),
                        *of_hot(self._hot.read()), *of_bridges(self._bridges()), *of_logins(self._logins())])


def of_process(version: str, started_s: float, process: "Mapping[str, Any]") -> "Iterator[Metric]":
    """Yield the metrics that Prometheus' clients have for processes. Open descriptors are left out, because the system
    needs long to list a hundred thousand of them."""
    build = GaugeMetricFamily("mosq_build_info", "The version, as a label; the value is 1.", labels=("version",))
    build.add_metric((version,), 1)
    yield build
    yield CounterMetricFamily("process_cpu_seconds", "Processor time of the broker's process, of all its threads.",
                              process["cpuSeconds"])
    yield GaugeMetricFamily("process_start_time_seconds", "Time at which the broker started, in Unix time.", started_s)
    yield GaugeMetricFamily("process_resident_memory_bytes", "Memory of the process, or of all workers, in which a "
                            "page that several share counts once.",
                            process["residentBytes"])
    yield GaugeMetricFamily("process_max_fds", "Largest number of file descriptors.",
                            resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def of_workers(engine: "Any") -> "Iterator[Metric]":
    """Yield the metrics of several workers and of the links between them; none of a broker that is alone."""
    if not hasattr(engine, "away"):
        return
    figures, away = engine.whole(), engine.figures_away()
    up = {str(number): int(number not in away) for number in range(1, len(figures.silent_ms) + 1)}
    cluster = engine.overview()
    elsewhere = set() if cluster is None else {str(place + 1) for place, name in enumerate(cluster["workers"])
                                               if name != cluster["node"]}
    yield _labelled("gauge", "worker_up", "1 while the worker answers. Otherwise look at the log. Of a cluster: the "
                    "workers of this node.", "worker",
                    {number: value for number, value in up.items() if number not in elsewhere})
    for key, kind, name, unit, help in LOADS:
        yield _labelled(kind, name, help, "worker",
                        {number: getattr(load, key) * unit for number, load in zip(up, figures.loads, strict=True)})
    for at, (name, help) in enumerate(LINK_COUNTERS):
        yield _labelled(COUNTER, name, help, "to",
                        {number: link[at] for number, link in zip(up, figures.links, strict=True)})
    rows = engine.link_figures()
    for key, name, unit, help in LINK_GAUGES:
        family = GaugeMetricFamily(f"mosq_{name}", help, labels=("from", "to"))
        for row in rows:
            family.add_metric((str(row["from"]), str(row["to"])), row[key] * unit)
        yield family


def of_cluster(engine: "Any") -> "Iterator[Metric]":
    """Yield the metrics of a cluster, of all nodes; none of another broker. The node notes them twice in each lease."""
    found = engine.overview() if hasattr(engine, "away") else None
    if found is None:
        return
    for key, name, help in CLUSTER:
        yield _family("gauge", name, help, found[key])
    for key, name, help in CLUSTER_COUNTS:
        yield _family("gauge", name, help, found["counts"][key])
    yield _labelled("gauge", "cluster_node_up", "1 while the node gives signs of life.", "node",
                    {name: int(state != "silent") for name, state in found["nodes"].items()})
    family = GaugeMetricFamily("mosq_cluster_worker_up", "1 if a living node has the worker; the label has its name.",
                               labels=("worker", "node"))
    for place, name in enumerate(found["workers"]):
        family.add_metric((str(place + 1), name or ""), int(name is not None))
    yield family
    yield _labelled("gauge", "cluster_commit_lag_seconds", "Time for which Redis has confirmed nothing to a worker's "
                    "store although something waits. Acknowledgements wait, too.", "worker",
                    {worker: lag_ms / 1000 for worker, lag_ms in found["lag_ms"].items()})


def of_stats(stats: "Stats", has_store: bool) -> "Iterator[Metric]":
    """Yield the metrics of the data plane's statistics."""
    for key, kind, name, unit, help in PLAIN + STORE if has_store else PLAIN:
        value = stats[key]
        yield _family(kind, name, help, value if unit == 1 else value * unit)
    for name, kind, label, help, keys in LABELLED:
        yield _labelled(kind, name, help, label, {text: stats[key] for text, key in keys.items()})
    for prefix, name, help in REASONS:
        yield _labelled(COUNTER, name, help, "reason", {
            key.removeprefix(prefix): value for key, value in stats.items() if key.startswith(prefix)})
    if has_store:
        trouble = stats["disk_trouble"]
        yield _labelled("gauge", "store_trouble", "1 while the store is in this state. QoS 1 and 2 are refused then. "
                        "Look at the log and at the disk.", "state",
                        {state: int(trouble & bit != 0) for state, bit in TROUBLE.items()})


def of_drops(drops: "Mapping[str, Mapping[str, int]]") -> "Iterator[Metric]":
    """Yield the drops by listener and reason; the names of listeners come from the configuration."""
    name, help = DROPS
    family = CounterMetricFamily(f"mosq_{name}", help, labels=("listener", "reason"))
    shown = [label for label in drops if label != OTHER][:LISTENERS_MAX]
    rest = dict(drops[OTHER])
    for label in drops.keys() - {OTHER, *shown}:
        rest = {reason: count + drops[label][reason] for reason, count in rest.items()}
    for label, counts in (*((label, drops[label]) for label in shown), (OTHER, rest)):
        for reason, count in counts.items():
            family.add_metric((label, reason), count)
    yield family


def of_observed(observed: "Mapping[str, Any] | None") -> "Iterator[Metric]":
    """Yield the histograms; none without `observe_messages`."""
    if observed is None:
        return
    for name, help, label, keys in HISTOGRAMS:
        family = HistogramMetricFamily(f"mosq_{name}", help, labels=(label,) if label else ())
        for text, key in keys.items():
            count, sum_ns, numbers = observed[key]
            family.add_metric((text,) if label else (), cumulative(count, numbers), sum_ns * 1e-9)
        yield family
    yield _labelled(COUNTER, "observations_lost", "Messages that were chosen for mosq_delivery_seconds and not "
                    "counted: all probes were taken, or the subscriber left.", "reason",
                    {"no_probe": observed["passed_over"], "left": observed["lost"]})


def of_hot(found: "Mapping[str, Any]") -> "Iterator[Metric]":
    """Yield sums of all queues, and the largest figures of slow clients and hot names, without their names: a label
    for each would have no bound."""
    for key, name, help in QUEUES:
        yield _family("gauge", name, help, found[key])
    for key, name, help in SLOWEST:
        if found["sampled"] or key != "delay_seconds":
            yield _family("gauge", name, help, max((row[key] or 0 for row in found["slow"]), default=0))
    if found["sampled"]:
        yield _labelled("gauge", "hottest_share", "Part of the sampled messages, or deliveries, that belongs to the "
                        "hottest name; 0 if no name stands out. `mosq ctl broker hot` shows it.", "of",
                        {one: _share(found[names], found[total]) for one, (names, total) in HOTTEST.items()})


def _share(rows: "list[dict[str, Any]]", total: float) -> float:
    return min(1.0, rows[0]["messages_per_second"] / total) if rows and total else 0.0


# two of four buckets are shown, which halves the size of a scrape; the last one has no end
SHOWN = tuple((bucket, repr(until_s(bucket))) for bucket in range(PARTS - 1, BUCKETS - 1) if bucket % 2)


def cumulative(count: int, numbers: "list[int]") -> list[tuple[str, float]]:
    """Return the buckets in the form of Prometheus: each counts all durations up to its end."""
    found: list[tuple[str, float]] = []
    total = at = 0
    for bucket, text in SHOWN:
        total += sum(numbers[at:bucket + 1])
        at = bucket + 1
        found.append((text, total))
    return [*found, ("+Inf", count)]


def of_streams(streams: "Mapping[str, Mapping[str, int]]") -> "Iterator[Metric]":
    """Yield the metrics of the streams; their names come from the configuration."""
    for key, kind, name, help in STREAMS if streams else ():
        yield _labelled(kind, name, help, "stream", {stream: values[key] for stream, values in streams.items()})


def of_bridges(bridges: "list[dict[str, Any]]") -> "Iterator[Metric]":
    """Yield the metrics of the bridges; their names come from the configuration."""
    yield _family("gauge", "bridges", "Configured bridges.", len(bridges))
    shown = bridges[:BRIDGES_MAX]
    yield _labelled("gauge", "bridge_connected", "1 while the bridge is connected. Otherwise look at the log and at "
                    "the other broker.", "bridge", {one["name"]: int(one["state"] == "connected") for one in shown})
    yield _labelled("gauge", "bridge_queued_messages", "Messages that wait for the other broker, or for its "
                    "acknowledgement.", "bridge", {one["name"]: one["queued"] or 0 for one in shown})


def of_logins(logins: "dict[str, int]") -> "Iterator[Metric]":
    """Yield the metrics of auth_backoff."""
    yield _family(COUNTER, "login_failures", "Logins with a wrong user name or password that were checked.",
                  logins.get("failed", 0))
    yield _family(COUNTER, "logins_refused_by_backoff", "Logins that were refused without a check in the pause of a "
                  "user or an address, auth_backoff. Many of them mean guessing, or devices with an old password.",
                  logins.get("refused", 0))
    yield _family("gauge", "backoff_users", "Pairs of user and address with a recent failed login.",
                  logins.get("users", 0))
    yield _family("gauge", "backoff_addresses", "Addresses with a recent failed login.", logins.get("addresses", 0))


def _family(kind: str, name: str, help: str, value: float) -> "Metric":
    return (CounterMetricFamily if kind == COUNTER else GaugeMetricFamily)(f"mosq_{name}", help, value)


def _labelled(kind: str, name: str, help: str, label: str, values: "Mapping[str, float]") -> "Metric":
    family = (CounterMetricFamily if kind == COUNTER else GaugeMetricFamily)(f"mosq_{name}", help, labels=(label,))
    for text, value in values.items():
        family.add_metric((text,), value)
    return family
