"""Formats the answer to `hot` as tables. Names from a broker cannot control the terminal. Functions raise KeyError,
TypeError and the like for an answer with an unexpected form."""

from mosq.tools.ctl.show import shown, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    Data = dict[str, Any]

NAME_MAX = 60                   # characters of a name
RATES = (("MSG/S", "messages_per_second"), ("BYTES/S", "bytes_per_second"), ("ERROR", "error"))
LISTS = (("topics", "TOPIC", "topic"), ("prefixes", "PREFIX", "prefix"), ("publishers", "PUBLISHER", "client_id"),
         ("receivers", "RECEIVER", "client_id"))
SLOW = (("DELAY", "delay_seconds"), ("QUEUED", "queue_length"), ("BYTES", "queue_bytes"), ("AGE", "queue_age_seconds"),
        ("UNSENT", "unsent_bytes"), ("INFLIGHT", "inflight"))
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def lines(data: "Data") -> "Iterable[str]":
    """Yield the slow clients and the hot names, with numbers to the left of each name."""
    if data["sampled"]:
        yield f"One message in {int(data['sampled'])} was sampled, for {float(data['window_s']):.0f} s."
    else:
        yield shown(data["hint"])
    yield ""
    yield from _table((*(title for title, _ in SLOW), "SLOW CLIENT"), [_slow(one) for one in data["slow"]])
    for name, title, key in LISTS:
        if data[name]:
            yield ""
            yield from _table((*(rate for rate, _ in RATES), title),
                              [(*(f"{float(one[rate]):,.1f}" for _, rate in RATES), _name(one[key]))
                               for one in data[name]])


def _table(head: tuple[str, ...], rows: "list[tuple[str, ...]]") -> "Iterable[str]":
    """Align all columns to the right, except the last."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return table([(*(cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)), row[-1])
                  for row in (head, *rows)])


def _slow(one: "Data") -> tuple[str, ...]:
    name = _name(one["client_id"]) + ("" if one["connected"] else " (offline)")
    return (*(_time(one[key]) if key.endswith("seconds") else str(int(one[key])) for _, key in SLOW), name)


def _name(text: str) -> str:
    name = shown(text)
    return name if len(name) <= NAME_MAX else f"{name[:NAME_MAX - 1]}…"


def _time(seconds: "float | None") -> str:
    if seconds is None:
        return "-"
    for unit, name in UNITS:
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return "0"
