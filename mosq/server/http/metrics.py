"""Composes `/metrics` for Prometheus: the statistics of the data plane, bridges and logins, in the text format of
Prometheus or in OpenMetrics. Loaded only if a listener has `http_metrics true`. Knows neither routes nor access rules.

prometheus-client writes the formats and escapes label values. Nothing of it runs between two scrapes: the values are
collected from the broker when a scrape asks for them, and its own registry of the Python process is not used.
Cost of a scrape: one control request to the loop, and about 2 ms of this thread (perf/FINDINGS.md).
"""

import os
import resource
import time

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

from mosq.server.http.metric_table import COUNTER, LABELLED, PLAIN, REASONS, STORE, TROUBLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from prometheus_client.metrics_core import Metric

    Stats = Mapping[str, int]

BRIDGES_MAX = 200               # bridges with metrics of their own; mosq_bridges counts all


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
        encode, content_type = choose_encoder(accept)
        if content_type not in self._texts:
            self._texts[content_type] = encode(self)
        return self._texts[content_type], content_type


class Metrics:
    """The metrics of one broker."""

    def __init__(self, version: str, has_store: "Callable[[], bool]", stats: "Callable[[], Stats]",
                 bridges: "Callable[[], list[dict[str, Any]]]", logins: "Callable[[], dict[str, int]]") -> None:
        """`logins`: the counts of auth_backoff; empty if nothing checks passwords."""
        self.version, self.has_store = version, has_store
        self._stats, self._bridges, self._logins = stats, bridges, logins
        self._started_s = time.time()

    def read(self) -> Reading:
        """Read everything. Raises RuntimeError if the loop does not run."""
        stats = self._stats()
        return Reading([*of_process(self.version, self._started_s), *of_stats(stats, self.has_store()),
                        *of_bridges(self._bridges()), *of_logins(self._logins())])


def of_process(version: str, started_s: float) -> "Iterator[Metric]":
    """Yield the metrics that Prometheus' clients have for processes. Open descriptors are left out, because the system
    needs long to list a hundred thousand of them."""
    build = GaugeMetricFamily("mosq_build_info", "The version, as a label; the value is 1.", labels=("version",))
    build.add_metric((version,), 1)
    yield build
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield CounterMetricFamily("process_cpu_seconds", "Processor time of the broker's process, of all its threads.",
                              usage.ru_utime + usage.ru_stime)
    yield GaugeMetricFamily("process_start_time_seconds", "Time at which the broker started, in Unix time.", started_s)
    yield GaugeMetricFamily("process_resident_memory_bytes", "Memory of the process, as the system counts it.",
                            resident_bytes())
    yield GaugeMetricFamily("process_max_fds", "Largest number of file descriptors.",
                            resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
