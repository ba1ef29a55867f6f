"""Formats answers as text: mosquitto_ctrl's lines for its commands, tables for the others. Names from a broker cannot
control the terminal. Functions raise KeyError, TypeError and the like for an answer with an unexpected form."""

from mosq.tools.table import shown, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    Data = dict[str, Any]

__all__ = ["listed", "number", "pairs", "shown", "table"]

LISTENER_TEXTS = (("protocol", "Protocol:"), ("socket-path", "Socket path:"), ("bind-address", "Bind address:"))
COLUMN_MAX = 64                 # names of clients may have 65,535 bytes
CLIENT_WIDTH, GROUP_WIDTH = len("Connections:"), len("Groupname:")


def listed(array: str, key: str) -> "Any":
    """Return a function that yields one name per line."""
    def lines(data: "Data") -> "Iterable[str]":
        return [shown(one if isinstance(one, str) else one[key]) for one in data[array]]
    return lines


def client(data: "Data") -> "Iterable[str]":
    one = data["client"]
    yield f"{'Username:':<{CLIENT_WIDTH}} {shown(one['username'])}"
    yield f"{'Clientid:':<{CLIENT_WIDTH}} {shown(one['clientid'])}" if "clientid" in one else "Clientid:"
    if "disabled" in one:
        yield f"{'Disabled:':<{CLIENT_WIDTH}} {'true' if one['disabled'] else 'false'}"
    yield from _array(one.get("roles"), "Roles:", "rolename", CLIENT_WIDTH, True)
    yield from _array(one.get("groups"), "Groups:", "groupname", CLIENT_WIDTH, True)
    yield from _array(one.get("connections"), "Connections:", "address", CLIENT_WIDTH, False)


def group(data: "Data") -> "Iterable[str]":
    one = data["group"]
    yield f"Groupname: {shown(one['groupname'])}"
    yield from _array(one.get("roles"), "Roles:", "rolename", GROUP_WIDTH, True)
    yield from _array(one.get("clients"), "Clients:", "username", GROUP_WIDTH, False)


def _array(array: "Any", label: str, key: str, width: int, with_priority: bool) -> "Iterable[str]":
    if not isinstance(array, list):
        yield label
        return
    for one in array:
        text = shown(one if isinstance(one, str) else one[key])
        if with_priority and not isinstance(one, str):
            text += f" (priority: {number(one.get('priority', -1))})"
        yield f"{label:<{width}} {text}"
        label = ""


def role(data: "Data") -> "Iterable[str]":
    one = data["role"]
    yield f"Rolename: {shown(one['rolename'])}"
    label = "ACLs:"
    for acl in one.get("acls", ()):
        allow = "allow" if acl["allow"] else "deny "
        yield (f"{label:<9} {shown(acl['acltype']):<20} : {allow} : {shown(acl['topic'])} "
               f"(priority: {number(acl.get('priority', -1))})")
        label = ""


def anonymous_group(data: "Data") -> "Iterable[str]":
    return [shown(data["group"]["groupname"])]


def default_access(data: "Data") -> "Iterable[str]":
    return [f"{shown(one['acltype']):<20} : {'allow' if one['allow'] else 'deny'}" for one in data["acls"]]


def pairs(data: "Data") -> "Iterable[str]":
    """Yield one line for each name and value; nested values get a heading."""
    width = max((len(name) for name, value in data.items() if not isinstance(value, (dict, list))), default=0)
    for name, value in data.items():
        if isinstance(value, dict):
            yield f"{shown(name)}:"
            yield from (f"  {line}" for line in pairs(value))
        else:
            yield f"{shown(name) + ':':<{width + 1}} {text(value)}"


def stats(data: "Data") -> "Iterable[str]":
    """Yield the numbers of a broker."""
    yield from pairs({name: value for name, value in data.items() if name != "workersAway"})
    yield from _away(data, "the figures of its sums are old")


def text(value: "Any") -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shown(value if isinstance(value, str) else str(value))


def number(value: "Any") -> int:
    return int(value)


def listeners(data: "Data") -> "Iterable[str]":
    for place, one in enumerate(data["listeners"], 1):
        yield f"Listener {place}:"
        yield f"  Port:              {number(one['port'])}"
        for key, label in LISTENER_TEXTS:
            if key in one:
                yield f"  {label:<18} {shown(one[key])}"
        yield f"  TLS:               {'true' if one.get('tls') else 'false'}"
        yield ""


def plugins(data: "Data") -> "Iterable[str]":
    for one in data["plugins"]:
        yield f"Plugin:            {shown(one['name'])}"
        if "version" in one:
            yield f"Version:           {shown(one['version'])}"
        label = "Control endpoints:"
        for endpoint in one.get("control-endpoints", ()):
            yield f"{label:<18} {shown(endpoint)}"
            label = ""


# ---------------------------------------------------------------- commands of mosq only

CLIENTS = (("CLIENT", "clientid"), ("USER", "username"), ("ADDRESS", "address"), ("PROTOCOL", "protocol"),
           ("MQTT", "version"), ("KEEPALIVE", "keepalive"), ("SUBS", "subscriptions"), ("QUEUED", "queued"),
           ("INFLIGHT", "inflight"), ("SESSION", ""))
PLACES = ("WORKER", "worker"), ("NODE", "node")     # of a client, if there are several


def sessions(data: "Data") -> "Iterable[str]":
    columns = (*CLIENTS[:1], *(one for one in PLACES if any(one[1] in client for client in data["clients"])),
               *CLIENTS[1:])
    rows = [tuple(_session(one) if not key else text(one.get(key)) for _, key in columns) for one in data["clients"]]
    yield from table([tuple(name for name, _ in columns), *rows], COLUMN_MAX)
    if data["cursor"]:
        yield f"More clients follow: use the cursor {number(data['cursor'])}."
    yield from _away(data, "its clients are missing")


def _away(data: "Data", missing: str) -> "Iterable[str]":
    """Yield a line for each worker that has not answered."""
    return [f"Worker {number(one)} has not answered: {missing}." for one in data.get("workersAway", ())]


def _session(one: "Data") -> str:
    if one["connected"]:
        kept = one["sessionExpiry"]
        return "connected" + ("" if kept == 0 else ", kept" if kept is None else f", kept {number(kept)} s")
    return "offline" + ("" if one.get("endsIn") is None else f", ends in {number(one['endsIn'])} s")


def session(data: "Data") -> "Iterable[str]":
    return pairs(data["client"])


def subscriptions(data: "Data") -> "Iterable[str]":
    flags = (("noLocal", "no local"), ("retainAsPublished", "retain as published"))
    rows = [(text(one["topic"]), str(number(one["qos"])), text(one.get("identifier")),
             ", ".join(words for key, words in flags if one.get(key)) or "-") for one in data["subscriptions"]]
    yield from table([("TOPIC", "QOS", "ID", "OPTIONS"), *rows], COLUMN_MAX)
    if data["more"]:
        yield f"There are {number(data['more'])} more."


def bridges(data: "Data") -> "Iterable[str]":
    """Yield a table of the bridges."""
    yield from _rows(data["bridges"])
    yield from _away(data, "its bridges are missing")


def drops(data: "Data") -> "Iterable[str]":
    """Yield a table of the drops by reason."""
    return _rows([{**one, "listeners": ", ".join(f"{name} {number(count)}" for name, count in one["listeners"].items())}
                  if "listeners" in one else one for one in data["drops"]])


LINK_TIMES = (("latencyMs", "latencySeconds"), ("meanMs", "latencySecondsMean"), ("maxMs", "latencySecondsMax"))


def links(data: "Data") -> "Iterable[str]":
    """Yield a table of the links between workers; times in milliseconds."""
    rows = []
    for one in data["links"]:
        row = {name: value for name, value in one.items() if not name.startswith("latency")}
        for name, key in LINK_TIMES:
            row[name] = None if one[key] is None else round(1e3 * one[key], 3)
        rows.append(row)
    if not rows:
        yield "The broker has one process, so it has no links."
    yield from _rows(rows)
    yield from _away(data, "the links from it are missing")


def _rows(rows: "list[Data]") -> "Iterable[str]":
    """Yield a table with a column for each field, in the order of the answer."""
    columns = list(dict.fromkeys(key for one in rows for key in one))
    if columns:
        yield from table([tuple(shown(name.upper()) for name in columns),
                          *(tuple(text(one.get(name)) for name in columns) for one in rows)], COLUMN_MAX)
