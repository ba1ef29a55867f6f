"""The tables of `mosq top` as data: columns, how a row sorts, which rows a filter leaves, which columns fit. Knows the
rows of the control API, no terminal library.
"""

from mosq.tools.top.texts import NONE, fitted, octets, safe, short

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mosq.tools.top.reading import Reading

    Row = dict[str, Any]
    Get = Callable[[Row], Any]

GAP = 1                         # columns of the terminal between two columns of a table
SHOWN_MAX = 400                 # characters of a name that are looked at


class Column:
    """One column. `columns`: least width; `most`: width that it may grow to; `rank`: columns with a low one stay when
    the terminal is narrow."""

    __slots__ = ("columns", "get", "help", "is_number", "most", "name", "rank", "show")

    def __init__(self, name: str, columns: int, get: "Get", rank: int, help: str,  # parameters: of a declaration
                 show: "Callable[[Any], str] | None" = None, most: int = 0) -> None:
        self.name, self.columns, self.get, self.rank, self.help = name, columns, get, rank, help
        self.is_number, self.most = show is not None, most or columns
        self.show = show or _text

    def cell(self, row: "Row", columns: int) -> str:
        """Return the cell in exactly this number of columns."""
        value = self.get(row)
        if self.is_number and not isinstance(value, (int, float)):
            value = None
        text = self.show(value)
        return text.rjust(columns)[:columns] if self.is_number else fitted(text, columns)

    def key(self, row: "Row") -> "Any":
        """Return the sort key; rows without a value come first."""
        value = self.get(row)
        if self.is_number:
            return value if isinstance(value, (int, float)) else -1.0
        return str(value or "").casefold()


def _text(value: "Any") -> str:
    return NONE if value is None else safe(str(value)[:SHOWN_MAX])


def _plain(name: str) -> "Get":
    return lambda row: row.get(name)


def _protocol(row: "Row") -> str | None:
    if not row.get("connected"):
        return None
    way = ("s" if row.get("tls") else "") + ("w" if row.get("protocol") == "websockets" else "")
    return f"{row.get('version', '?')}{' ' if way else ''}{way}"


def _address(row: "Row") -> str:
    return (row.get("address") or "local") if row.get("connected") else "offline"


CLIENTS = (
    Column("CLIENT", 15, _plain("clientid"), 0, "client id", most=40),
    Column("USER", 7, _plain("username"), 5, "user name", most=20),
    Column("ADDRESS", 15, _address, 3, "address, or offline", most=39),
    Column("MQTT", 7, _protocol, 6, "version; s: TLS, w: WebSockets"),
    Column("IN/S", 6, _plain("rateIn"), 4, "messages per second from it, estimated, of hot clients", short),
    Column("OUT/S", 6, _plain("rateOut"), 4, "messages per second to it, estimated, of hot clients", short),
    Column("QUEUE", 6, _plain("queued"), 1, "messages that wait for it", short),
    Column("INFL", 5, _plain("inflight"), 2, "messages that it has not acknowledged", short),
    Column("SUBS", 5, _plain("subscriptions"), 2, "subscriptions", short),
    Column("QBYTES", 8, _plain("queueBytes"), 7, "memory of its queue", octets),
    Column("UNSENT", 8, _plain("unsentBytes"), 7, "bytes that its socket has not accepted", octets),
    Column("INBOX", 6, _plain("inbox"), 8, "inbound QoS 2 messages", short),
    Column("KEEPAL", 7, _plain("keepalive"), 9, "keepalive, in seconds", short),
    Column("PORT", 5, _plain("port"), 10, "its port", lambda value: NONE if value is None else str(value)),
)
PER_S, BYTES_S = _plain("messages_per_second"), _plain("bytes_per_second")


def _prefix(row: "Row") -> "Any":
    return row.get("prefix", row.get("topic"))


def _rated(name: str, get: "Get", what: str) -> "tuple[Column, ...]":
    return (Column(name, 40, get, 0, what, most=200),
            Column("MSG/S", 7, PER_S, 1, "messages per second, estimated", short),
            Column("BYTES/S", 9, BYTES_S, 2, "payload bytes per second, estimated", octets),
            Column("ERROR/S", 8, _plain("error"), 3, "the estimate is at most this much too high", short))


SLOW = (
    Column("CLIENT", 24, _plain("client_id"), 0, "client id", most=60),
    Column("DELAY", 9, _plain("delay_seconds"), 1, "longest arrival to flush of sampled messages, in ms",
           lambda value: NONE if value is None else f"{short(value * 1e3)} ms"),
    Column("AGE", 7, _plain("queue_age_seconds"), 2, "age of the oldest queued message",
           lambda value: NONE if value is None else f"{short(value)} s"),
    Column("QUEUE", 6, _plain("queue_length"), 1, "messages that wait for it", short),
    Column("QBYTES", 8, _plain("queue_bytes"), 3, "memory of its queue", octets),
    Column("UNSENT", 8, _plain("unsent_bytes"), 3, "bytes that its socket has not accepted", octets),
    Column("INFL", 5, _plain("inflight"), 3, "messages that it has not acknowledged", short),
)


class View:
    """One table. `place`: where the answer of `hot` has its rows; None: the clients."""

    def __init__(self, title: str, columns: "tuple[Column, ...]", sort: int, place: str | None = None) -> None:
        self.title, self.columns, self.place = title, columns, place
        self.sort, self.is_descending = sort, columns[sort].is_number

    @property
    def id_key(self) -> str | None:
        """Return the name of the field with the client id; None for tables of topics."""
        return {None: "clientid", "topics": None, "prefixes": None}.get(self.place, "client_id")

    def rows(self, reading: "Reading", filter: str, with_offline: bool = True) -> "list[Row]":
        """Return the rows that the filter leaves, sorted."""
        given = reading.clients if self.place is None else (reading.hot or {}).get(self.place, ())
        found = [row for row in given if self._is_wanted(row, filter.casefold(), with_offline)]
        found.sort(key=self.columns[0].key)
        found.sort(key=self.columns[self.sort].key, reverse=self.is_descending)
        return found

    def _is_wanted(self, row: "Row", filter: str, with_offline: bool) -> bool:
        if self.place is None and not with_offline and not row.get("connected"):
            return False
        return not filter or any(filter in one.key(row) for one in self.columns if not one.is_number)

    def sort_by(self, place: int) -> None:
        """Sort by another column; the same one again turns the order round."""
        place %= len(self.columns)
        self.is_descending = not self.is_descending if place == self.sort else self.columns[place].is_number
        self.sort = place

    def sort_by_name(self, name: str) -> bool:
        """Sort by the column with this name; return False if there is none."""
        for place, one in enumerate(self.columns):
            if one.name.casefold() == name.casefold():
                self.sort, self.is_descending = place, one.is_number
                return True
        return False

    def name_of(self, row: "Row") -> str:
        """Return the key of a row: the client id or the topic."""
        return str(self.columns[0].get(row))

    def fit(self, columns: int) -> "list[tuple[Column, int]]":
        """Return the columns that fit into a width, with their widths. The sort column is always among them."""
        wanted = sorted(range(len(self.columns)), key=lambda n: (n not in (0, self.sort), self.columns[n].rank, n))
        kept: set[int] = set()
        left = columns + GAP
        for n in wanted:
            if self.columns[n].columns + GAP <= left or not kept:
                kept.add(n)
                left -= self.columns[n].columns + GAP
        widths = {n: self.columns[n].columns for n in sorted(kept)}
        for n in widths:
            more = min(max(left, 0), self.columns[n].most - widths[n])
            widths[n] += more
            left -= more
        widths[0] = min(widths[0], columns)
        return [(self.columns[n], wide) for n, wide in widths.items()]

    def head(self, fit: "list[tuple[Column, int]]") -> str:
        """Return the line of titles; an arrow marks the sort column."""
        chosen = self.columns[self.sort]
        titles = []
        for one, wide in fit:
            text = one.name + (("v" if self.is_descending else "^") if one is chosen else "")
            titles.append(text.rjust(wide)[:wide] if one.is_number else text.ljust(wide)[:wide])
        return " ".join(titles)

    @staticmethod
    def line(row: "Row", fit: "list[tuple[Column, int]]") -> str:
        """Return a row as one line."""
        return " ".join(one.cell(row, wide) for one, wide in fit)


def made() -> "list[View]":
    """Return all tables."""
    queue = next(n for n, one in enumerate(CLIENTS) if one.name == "QUEUE")
    return [View("clients", CLIENTS, queue), View("topics", _rated("TOPIC", _plain("topic"), "topic"), 1, "topics"),
            View("prefixes", _rated("PREFIX", _prefix, "first levels of topics"), 1, "prefixes"),
            View("publishers", _rated("CLIENT", _plain("client_id"), "client id"), 1, "publishers"),
            View("receivers", _rated("CLIENT", _plain("client_id"), "client id"), 1, "receivers"),
            View("slow", SLOW, 1, "slow")]


def names(columns: "Iterable[Column]") -> str:
    """Return the names of columns, for messages."""
    return ", ".join(one.name.lower() for one in columns)
