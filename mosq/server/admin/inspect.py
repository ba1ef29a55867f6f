"""`$CONTROL/mosq/broker/v1`: the commands that Mosquitto's control API lacks. They list connected clients and their
queues, disconnect clients, and report drops by reason, the state of bridges, hot topics and slow clients;
docs/control.md has the table. The answer goes only to the client that sent the request.

Translates the engine's answers into the words of the API. Every list is divided into pages, so no answer exceeds some
hundred KB, and the loop computes each page in slices.
"""

from time import monotonic

from mosq.server.admin.commands import CommandError, Commands
from mosq.server.admin.hot import ROWS_MAX, Hot
from mosq.stat_names import DROPS
from mosq.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.engine import Engine
    from mosq.records import SessionDetail, SessionSubscription
    from mosq.server.admin.commands import Fields, Function
    from mosq.server.admin.control import BridgeStates, Requester

TOPIC = "$CONTROL/mosq/broker/v1"
CLIENTS_COUNT, CLIENTS_COUNT_MAX = 100, 1000
PAGE_CHARACTERS_MAX = 1 << 20   # client ids and user names of a page, which ends early: each may have 65,535 bytes
SLICES_MAX, PAGE_S = 100, 2.0   # slices of the engine that are searched for one page, and the time for them
HOT_LIMIT = 20
CURSOR_MAX = 0xFFFFFFFF         # of one process; several workers have a larger one
OFFSET_MAX = 100_000
VERSIONS = {3: "3.1", 4: "3.1.1", 5: "5.0"}
NOT_FOUND, NOT_CONNECTED = "Client not found", "Client not connected"

GROUPS = {
    "clients": ("clients_connected", "clients_total", "clients_max", "clients_expired", "connections", "sockets"),
    "messages": ("messages_in", "messages_out", "publish_in", "publish_out", "publish_bytes_in", "publish_bytes_out",
                 "bytes_in", "bytes_out", "publish_dropped"),
    "queues": ("store_messages", "store_bytes", "unsent_bytes", "unsent_packets", "retained"),
    "subscriptions": ("subscriptions", "shared_subscriptions", "filters"),
}
GAUGES = ("drops", "refused", "disk")       # reported without this prefix


def commands(engine: "Callable[[], Engine]", bridges: "BridgeStates | None", report: "Callable[[int, str], None]",
             hot: "Hot | None" = None, process: "Callable[[], dict[str, Any]] | None" = None) -> Commands:
    """Return the handler of the topic. `hot`: shared with others that ask the same."""
    do = Inspection(engine, bridges, hot, process)
    reads: dict[str, Function] = {
        "listClients": do.list_clients, "getClient": do.get_client, "listSubscriptions": do.list_subscriptions,
        "getStats": do.get_stats, "listBridges": do.list_bridges, "hot": do.hot,
        "listDrops": do.list_drops, "listLinks": do.list_links,
    }
    return Commands("Broker", TOPIC, {**reads, "kickClient": do.kick_client}, report, frozenset(reads))


class Inspection:
    """The functions of the commands."""
    def __init__(self, engine: "Callable[[], Engine]", bridges: "BridgeStates | None",
                 hot: "Hot | None" = None, process: "Callable[[], dict[str, Any]] | None" = None) -> None:
        self._engine, self._bridges = engine, bridges
        self._process = process if process is not None else own_process
        self._hot = Hot(engine) if hot is None else hot

    def list_clients(self, requester: "Requester", fields: "Fields") -> "dict[str, Any]":
        count = fields.number("count", CLIENTS_COUNT, CLIENTS_COUNT_MAX, 1)
        cursor = fields.number("cursor", 0, getattr(self._engine(), "cursor_max", CURSOR_MAX))
        is_wanted = _filter(fields)
        found: list[dict[str, Any]] = []
        room, until_s = PAGE_CHARACTERS_MAX, monotonic() + PAGE_S
        for _ in range(SLICES_MAX):
            part = self._engine().sessions(cursor, count - len(found))
            cursor = part.cursor
            new = [shown(row) for row in part.sessions if is_wanted(row)]
            found += new
            room -= sum(len(row["clientid"]) + len(row["username"] or "") for row in new)
            if cursor == 0 or len(found) >= count or room <= 0 or monotonic() >= until_s:
                break
        return {"clients": found, "cursor": cursor, **workers_away(self._engine())}

    def get_client(self, requester: "Requester", fields: "Fields") -> "dict[str, Any]":
        return {"client": shown(self._session(fields.text("clientid"), 0).session)}

    def kick_client(self, requester: "Requester", fields: "Fields") -> None:
        if not self._engine().kick(fields.text("clientid")):
            raise CommandError(self._missing(NOT_CONNECTED))

    def list_subscriptions(self, requester: "Requester", fields: "Fields") -> "dict[str, Any]":
        client_id, offset = fields.text("clientid"), fields.number("offset", 0, OFFSET_MAX)
        detail = self._session(client_id, offset)
        return {"clientid": client_id, "totalCount": detail.session["subscriptions"], "more": detail.left_out,
                "subscriptions": [_subscription(one) for one in detail.subscriptions]}

    def get_stats(self, requester: "Requester", fields: "Fields") -> "dict[str, Any]":
        stats = self._engine().stats()
        data: dict[str, Any] = {group: {name: stats[name] for name in names} for group, names in GROUPS.items()}
        for group in GAUGES:
            data[group] = {name.removeprefix(f"{group}_"): value for name, value in stats.items()
                           if name.startswith(f"{group}_")}
        data["disk"]["state"] = store_state(data["disk"].pop("trouble"))
        return {"version": VERSION, "process": self._process(), **data,
                **workers_away(self._engine(), "figures_away")}

    def list_bridges(self, requester: "Requester", fields: "Fields") -> "dict[str, Any]":
        return {"bridges": [] if self._bridges is None else self._bridges(), **workers_away(self._engine())}

    def hot(self, requester: "Requester", fields: "Fields") -> "dict[str, Any]":
        return self._hot.read(fields.number("limit", HOT_LIMIT, ROWS_MAX, 1))

    def list_drops(self, requester: "Requester", fields: "Fields") -> "dict[str, Any]":
        drops, examples = self._engine().listener_drops(), self._engine().drop_examples()
        rows = [_drop(reason, {label: counts[reason] for label, counts in drops.items() if counts[reason]},
                      examples.get(reason)) for reason in DROPS]
        return {"drops": sorted((one for one in rows if one["count"]), key=lambda one: -one["count"])}

    def list_links(self, requester: "Requester", fields: "Fields") -> "dict[str, Any]":
        return {"links": [_link(one) for one in self._engine().link_figures()], **workers_away(self._engine())}

    def _session(self, client_id: str, skip: int) -> "SessionDetail":
        found = self._engine().session(client_id, skip)
        if found is None:
            raise CommandError(self._missing(NOT_FOUND))
        return found

    def _missing(self, error: str) -> str:
        """Return an error, with the workers that may have the client."""
        away = workers_away(self._engine()).get("workersAway", ())
        return f"{error}; no answer from worker {', '.join(map(str, away))}" if away else error


def workers_away(engine: "Any", which: str = "away") -> "dict[str, Any]":
    """Return the numbers of the workers that an answer lacks, if there are any. `which`: figures_away for
    statistics."""
    away: list[int] = getattr(engine, which, list)()
    return {"workersAway": away} if away else {}


def own_process() -> "dict[str, Any]":
    """Return the age of this process in seconds, its processor time, and its memory as the system counts it."""
    import os
    import resource
    import time

    usage = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/stat", "rb") as file:
        started = int(file.read().rpartition(b")")[2].split()[19])      # ticks since the start of the system
    with open("/proc/self/statm", "rb") as file:
        pages = int(file.read().split()[1])
    return {"uptime": int(time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")),
            "cpuSeconds": usage.ru_utime + usage.ru_stime, "residentBytes": pages * os.sysconf("SC_PAGE_SIZE")}


def store_state(trouble: int) -> str:
    """Return the state in the words of $SYS/broker/store/state."""
    return "full" if trouble & 1 else "error" if trouble & 2 else "memory" if trouble else "ok"


def _filter(fields: "Fields") -> "Callable[[dict[str, Any]], bool]":
    connected, username, prefix = fields.choice("connected"), fields.optional("username"), fields.optional("prefix")

    def is_wanted(row: "dict[str, Any]") -> bool:
        return (connected in (None, row["connected"]) and username in (None, row["username"])
                and (prefix is None or row["id"].startswith(prefix)))

    return is_wanted


def shown(row: "dict[str, Any]") -> "dict[str, Any]":
    """Return a session of the engine in the words of the API."""
    data: dict[str, Any] = {"clientid": row["id"], "username": row["username"], "connected": row["connected"]}
    if "worker" in row:
        data["worker"] = row["worker"]
    if "node" in row:
        data["node"] = row["node"]
    if row["connected"]:
        data |= {"address": row["address"], "port": row["port"], "listener": row["listener"],
                 "protocol": "websockets" if row["websockets"] else "mqtt", "tls": row["tls"],
                 "version": VERSIONS.get(row["version"], str(row["version"])), "keepalive": row["keepalive"],
                 "window": row["window"], "unsentBytes": row["unsent_bytes"]}
    else:
        data["endsIn"] = row.get("ends_s")
    return {**data, "sessionExpiry": row["expiry_s"], "will": row["will"], "subscriptions": row["subscriptions"],
            "queued": row["waiting"], "inflight": row["inflight"], "pending": row["pending"], "inbox": row["inbox"],
            "queueBytes": row["queue_bytes"]}


def _drop(reason: str, by_listener: "dict[str, int]", example: "dict[str, Any] | None") -> "dict[str, Any]":
    """Return the drops of a reason in the words of the API, with the last one as an example."""
    data: dict[str, Any] = {"reason": reason, "count": sum(by_listener.values()), "listeners": by_listener}
    if example is not None:
        data |= {"lastTime": example["time"], "clientid": example["client_id"], "topic": example["topic"]}
        data |= {name: True for name, key in (("clientidCut", "id_cut"), ("topicCut", "topic_cut")) if example[key]}
    return data


def _link(row: "dict[str, int]") -> "dict[str, Any]":
    """Return the figures of a link between two workers in the words of the API."""
    n = row["latency_n"]
    return {"from": row["from"], "to": row["to"], "connected": bool(row["connected"]), "routes": row["routes"],
            "sent": row["sent"], "unacknowledged": row["unacknowledged"],
            "unacknowledgedBytes": row["unacknowledged_bytes"], "queued": row["queued"],
            "queuedBytes": row["queued_bytes"], "dropped": row["dropped"],
            "latencySeconds": row["latency_us"] / 1e6 if n else None,
            "latencySecondsMean": row["latency_sum_us"] / n / 1e6 if n else None,
            "latencySecondsMax": row["latency_max_us"] / 1e6 if n else None}


def _subscription(row: "SessionSubscription") -> "dict[str, Any]":
    """Return a subscription in the words of the API. `options` are those of the SUBSCRIBE packet [v5 3.8.3.1]."""
    data: dict[str, Any] = {"topic": row.filter, "qos": row.options & 3}
    if row.options & 4:
        data["noLocal"] = True
    if row.options & 8:
        data["retainAsPublished"] = True
    if row.identifier:
        data["identifier"] = row.identifier
    return data
