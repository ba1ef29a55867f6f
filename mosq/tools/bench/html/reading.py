"""Read a folder of results: about.json, runs.jsonl, locust.json, and files of `mosq bench --json`.

The files may come from anywhere. Each value is checked; a wrong part is reported with its file and line and left out,
and reading continues. Bounded are: bytes in all, bytes of a line, runs, and the length of names.
"""

from __future__ import annotations

import json
import math
from array import array
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosq.tools.bench.html.model import About, Broker, Failed, Folder, Key, Locust, Requests, Row, Times
from mosq.tools.bench.result import FORMAT
from mosq.tools.bench.spec import BenchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    Json = dict[str, Any]

TOTAL_BYTES_MAX = 512_000_000
BY_HAND_BYTES_MAX = 128_000_000     # all of them are in memory at once, as Python objects of ten times the size
LINE_BYTES_MAX = 32_000_000
RUNS_MAX = 20_000
FILES_MAX = 2_000
PROBLEMS_MAX = 50
COLUMNS_MAX = 50
LEFT_OUT_MAX = 1000
NAME_CHARS_MAX = 120
TEXT_CHARS_MAX = 20_000
NUMBER_MAX = 1e18
COUNTS = ("published", "delivered", "lost", "duplicates", "out_of_order", "refused", "unsent", "unacknowledged",
          "closed", "foreign")
# options of a run by hand that do not make it another measurement
VOLATILE = frozenset({"scenario", "host", "port", "broker_pid", "name", "prefix", "username", "stall", "cafile", "cert",
                      "key", "servername", "psk", "psk_identity"})
WITH_QOS = frozenset({"fan-in", "fan-out", "pairs", "shared", "offline", "retained", "payloads", "match"})
# options that make a series of points if nothing else differs
X_OPTIONS = {"clients": "clients", "publishers": "publishers", "subscribers": "subscribers", "messages": "messages",
             "size": "bytes"}
IDLE = frozenset({"hold"})          # phases without work: no rate, no cost


class WrongError(ValueError):
    """State which part of a file is wrong."""


def read(path: str) -> Folder:
    """Read a folder. Raises BenchError if there is nothing to read."""
    folder = Folder(path)
    files, runs = _files(path)
    by_hand: list[Json] = []
    for file in files:
        with _Naming(folder, str(file)):
            _file(folder, file, by_hand)
    if runs is not None:
        for number, line in _lines(runs, folder):
            with _Naming(folder, f"{runs}:{number}"):
                data = table(_parsed(line), "the line")
                _format(data)
                _run(folder, data, table(data.get("run"), "run"))
    by_hand.sort(key=lambda data: text(data, "started"))
    for data, run in zip(by_hand, runs_of(by_hand), strict=True):
        with _Naming(folder, path):
            _run(folder, data, run)
    if not folder.runs and folder.locust is None:
        found = f" ({'; '.join(folder.problems[:3])})" if folder.problems else ""
        raise BenchError(f"{path}: no results in it{found}; expected runs.jsonl, locust.json or files of "
                         "`mosq bench --json`")
    return folder


def _files(path: str) -> tuple[list[Path], Path | None]:
    root, runs = Path(path), Path(path, "runs.jsonl")
    try:
        if not root.is_dir():
            raise BenchError(f"{path}: expected a folder of results")
        files = sorted(file for file in root.iterdir() if file.suffix == ".json" and file.is_file())
        found = runs if runs.is_file() else None
        by_hand = sum(file.stat().st_size for file in files)
        total = by_hand + (runs.stat().st_size if found else 0)
    except OSError as error:
        raise BenchError(f"cannot read {path}: {error.strerror}") from None
    for size, most, what in ((total, TOTAL_BYTES_MAX, "results"), (by_hand, BY_HAND_BYTES_MAX, "*.json")):
        if size > most:
            raise BenchError(f"{path}: {size / 1e6:,.0f} MB of {what}; this reads {most / 1e6:,.0f} MB at most")
    if len(files) > FILES_MAX:
        raise BenchError(f"{path}: {len(files):,} files; this reads {FILES_MAX:,} at most")
    return files, found


def _file(folder: Folder, file: Path, by_hand: list[Json]) -> None:
    data = table(_parsed(file.read_bytes()), "the file")
    _format(data)
    if file.name == "about.json":
        folder.about = _about(data)
    elif file.name == "locust.json":
        folder.locust = _locust(data)
    elif "phases" in data:
        text(data, "started")
        _run(Folder(""), data, runs_of([data])[0])      # only a check; the case needs all files
        by_hand.append(data)
    else:
        raise WrongError("expected a result of `mosq bench --json`")


class _Naming:
    """Record an error in the block as a problem of this place, and continue."""

    def __init__(self, folder: Folder, place: str) -> None:
        self.folder, self.place = folder, place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, (WrongError, OSError)):
            return False
        if len(self.folder.problems) < PROBLEMS_MAX:
            why = error.strerror if isinstance(error, OSError) else error
            self.folder.problems.append(f"{self.place}: {why}")
        elif len(self.folder.problems) == PROBLEMS_MAX:
            self.folder.problems.append("further problems are not listed")
        return True


def _lines(path: Path, folder: Folder) -> Iterator[tuple[int, bytes]]:
    with _Naming(folder, str(path)), path.open("rb") as file:
        number = 0
        while line := file.readline(LINE_BYTES_MAX + 1):
            number += 1
            if len(line) > LINE_BYTES_MAX:
                raise WrongError(f"line {number} has more than {LINE_BYTES_MAX / 1e6:,.0f} MB; reading stopped there")
            if folder.runs >= RUNS_MAX:
                raise WrongError(f"more than {RUNS_MAX:,} runs; reading stopped at line {number}")
            if line.strip():
                yield number, line


def _parsed(text: bytes) -> Any:
    def constant(name: str) -> None:
        raise WrongError(f"{name} is not a number")

    try:
        return json.loads(text, parse_constant=constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
        raise WrongError(f"not JSON: {error.msg} at {place}") from None
    except UnicodeDecodeError:
        raise WrongError("not JSON: not UTF-8") from None
    except RecursionError:
        raise WrongError("not a result: nested too deep") from None
    except WrongError:
        raise
    except ValueError:              # a number of thousands of digits
        raise WrongError("not a result: a number is too long") from None


# ---------------------------------------------------------------- values

def table(value: Any, name: str) -> Json:
    """Return a JSON object. Raises WrongError for another type."""
    if not isinstance(value, dict):
        raise WrongError(f"{name}: expected an object")
    return value


def inner(data: Json, name: str) -> Json:
    """Return the object below a name; {} if it is missing."""
    value = data.get(name)
    return {} if value is None else table(value, name)


def listed(data: Json, name: str) -> list[Any]:
    """Return the list below a name. Raises WrongError for another type."""
    value = data.get(name)
    if not isinstance(value, list):
        raise WrongError(f"{name}: expected a list")
    return value


def text(data: Json, name: str, most: int = NAME_CHARS_MAX) -> str:
    """Return the text below a name, cleaned and cut to `most` characters; "" if it is missing."""
    value = data.get(name, "")
    if not isinstance(value, str):
        raise WrongError(f"{name}: expected text")
    return clean(value, most)


def clean(value: str, most: int = NAME_CHARS_MAX) -> str:
    """Replace characters that control a terminal or cannot be written, such as half of a surrogate pair."""
    value = "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in value[:most + 1])
    return value if len(value) <= most else value[:most - 1] + "…"


def flag(data: Json, name: str, missing: bool) -> bool:
    """Return the bool below a name; `missing` if there is none."""
    value = data.get(name, missing)
    if not isinstance(value, bool):
        raise WrongError(f"{name}: expected true or false")
    return value


def number(data: Json, name: str) -> float | None:
    """Return the finite number below a name, or None if it is missing."""
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongError(f"{name}: expected a number")
    if not -NUMBER_MAX <= value <= NUMBER_MAX or not math.isfinite(value):
        raise WrongError(f"{name}: out of bounds")
    return float(value)


def amount(data: Json, name: str) -> float | None:
    """Return the number below a name, at least 0, or None if it is missing."""
    value = number(data, name)
    if value is not None and value < 0:
        raise WrongError(f"{name}: below zero")
    return value


def _format(data: Json) -> None:
    if data.get("format") != FORMAT:
        raise WrongError(f"format {str(data.get('format'))[:20]}; this reads format {FORMAT}")


# ---------------------------------------------------------------- runs

def runs_of(data: list[Json]) -> list[Json]:
    """Return the `run` object for results that users put into the folder.

    Results with the same options are repetitions. Options that differ within a scenario make the case; a single number
    is a place on an axis.
    """
    scenarios: dict[str, list[Json]] = {}
    for one in data:
        scenarios.setdefault(text(one, "scenario"), []).append(inner(one, "options"))
    differ = {scenario: [name for name in dict.fromkeys(name for one in options for name in one)
                         if name not in VOLATILE and name != "qos" and len({str(one.get(name)) for one in options}) > 1]
              for scenario, options in scenarios.items()}
    seen: dict[tuple[str, str, float | None, str], int] = {}
    runs = []
    for one in data:
        options, scenario = inner(one, "options"), text(one, "scenario")
        parts = [f"QoS {str(options.get('qos', 0))[:1]}"] if scenario in WITH_QOS else []
        alone = differ[scenario][0] if len(differ[scenario]) == 1 else ""
        x = X_OPTIONS.get(alone) if all(_is_number(one.get(alone)) for one in scenarios[scenario]) else None
        if x is None:
            parts += [f"{name} {_plain(options.get(name))}" for name in differ[scenario]]
        case, broker = ", ".join(parts), _broker_of(one)
        value = options[alone] if x else None
        rep = seen[scenario, case, value, broker] = seen.get((scenario, case, value, broker), -1) + 1
        runs.append({"suite": "bench", "test": scenario, "title": scenario, "case": case, "broker": broker, "rep": rep,
                     "x": value, "x_name": x or ""})
    return runs


def _broker_of(data: Json) -> str:
    """Return the broker's name, or its address: two brokers without names are different ones."""
    options = inner(data, "options")
    if named := text(options, "name") or text(data, "where"):
        return named
    host, port = text(options, "host"), number(options, "port")
    return "" if not host else host if port is None else f"{host}:{port:.0f}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= NUMBER_MAX


def _plain(value: Any) -> str:
    return f"{value:,g}" if _is_number(value) else str(value)[:40]


def _run(folder: Folder, data: Json, run: Json) -> None:
    """Add a run completely, or raise WrongError and add nothing."""
    options, complete = inner(data, "options"), flag(data, "complete", True)
    suite, test = text(run, "suite") or "bench", text(run, "test") or text(data, "scenario")
    title = text(run, "title") or test
    rep = int(amount(run, "rep") or 0)
    names: dict[str, Any] = {"suite": suite, "test": test, "case": text(run, "case"), "x": number(run, "x"),
                             "broker": text(run, "broker"), "variant": text(run, "variant")}
    columns = {names["broker"], names["variant"]} - folder.columns
    if len(folder.columns) + len(columns) > COLUMNS_MAX:
        raise WrongError(f"more than {COLUMNS_MAX} brokers and variants")
    rows, phases = [], listed(data, "phases")
    for phase in phases:
        row = _row(table(phase, "a phase"), names, options, run, data, title, rep)
        if row.key.phase not in IDLE:
            rows.append(row)
    why = text(data, "why", 1000)
    if not folder.about.machine:
        started = folder.about.started or text(data, "started")
        folder.about = replace(folder.about, machine=_machine(data), started=started)
    folder.runs += 1
    folder.columns |= columns
    folder.rows += rows
    if not complete:
        last = rows[-1].key.phase if rows else ""
        folder.failed.append(Failed(Key(**names, phase=last), title, rep, why or "without a reason"))


def _row(phase: Json, names: Json, options: Json, run: Json, data: Json, title: str, rep: int) -> Row:
    seconds, per = amount(phase, "seconds") or 0.0, int(amount(phase, "per") or 0)
    rate = amount(phase, "rate")
    qos, size, clients = (None if (value := amount(options, name)) is None else int(value)
                          for name in ("qos", "size", "clients"))
    return Row(Key(**names, phase=text(phase, "name")), title, text(run, "x_name"), rep,
               text(run, "command", 2000), text(data, "scenario"), text(phase, "unit") or "message",
               qos, size, clients, bool(amount(options, "rate")),
               not (flag(options, "tls", False) or flag(options, "ws", False)), seconds, per,
               rate if rate is not None else per / seconds if seconds else 0.0,
               _times(phase, "latency"), _times(phase, "ack"), _times(phase, "connect"),
               _numbers(inner(phase, "broker")), _numbers(inner(phase, "generator")),
               {name: int(amount(phase, name) or 0) for name in COUNTS},
               {name: value for name, value in _numbers(inner(phase, "extra")).items()
                if name.startswith("bytes_per_")},
               amount(phase, "foreign_cpu_share") or 0.0, text(phase, "limit"), flag(phase, "complete", True),
               text(run, "note", 1000), text(run, "start", 2000), int(amount(run, "dropped_packets") or 0))


def _numbers(data: Json) -> dict[str, float]:
    return {name[:NAME_CHARS_MAX]: value for name, one in data.items()
            if not isinstance(one, str) and (value := number(data, name)) is not None}


def _times(phase: Json, name: str) -> Times:
    data = inner(phase, name)
    count = int(amount(data, "count") or 0)
    if not count:
        return Times()
    buckets = array("Q")
    for bucket in listed(data, "buckets_ns") if "buckets_ns" in data else ():
        if not (isinstance(bucket, list) and len(bucket) == 3 and all(type(n) is int and 0 <= n < 2**63 for n in bucket)
                and bucket[0] < bucket[1]):
            raise WrongError(f"{name}.buckets_ns: expected lists of [from, to before, count]")
        buckets.extend(bucket)
    us = {key: value for key in data if key.endswith("_us") and (value := amount(data, key)) is not None}
    if buckets and "stdev_us" not in us:
        us["stdev_us"] = _deviation_us(buckets)
    return Times(count, us, buckets)


def _deviation_us(buckets: array[int]) -> float:
    middles = [((first + last - 1) / 2e3, n) for first, last, n in zip(*[iter(buckets)] * 3, strict=True)]
    count = sum(n for _, n in middles) or 1
    mean = sum(middle * n for middle, n in middles) / count
    return math.sqrt(sum((middle - mean) ** 2 * n for middle, n in middles) / count)


# ---------------------------------------------------------------- the other files

def _about(data: Json) -> About:
    brokers = []
    for name, value in inner(data, "brokers").items():
        one = table(value, f"brokers.{name[:40]}")
        brokers.append(Broker(clean(name), text(one, "version"), text(one, "settings", TEXT_CHARS_MAX),
                              text(one, "program")))
    if len(brokers) > COLUMNS_MAX:
        raise WrongError(f"more than {COLUMNS_MAX} brokers")
    left_out = listed(data, "left_out") if "left_out" in data else []
    return About(text(data, "title"), text(data, "commit"), flag(data, "dirty", False), _machine(data),
                 tuple(brokers),
                 text(data, "command", 2000), text(data, "started"), text(data, "ended"), flag(data, "complete", True),
                 text(data, "why", 1000),
                 tuple(text({"left_out": one}, "left_out", 1000) for one in left_out[:LEFT_OUT_MAX]))


def _machine(data: Json) -> dict[str, str]:
    machine = inner(data, "machine")
    return {clean(name, 40): clean(str(value)) for name, value in machine.items()
            if isinstance(value, (str, int, float)) and str(value)}


def _locust(data: Json) -> Locust:
    entries = []
    for value in listed(data, "entries"):
        one = table(value, "an entry")
        us = {f"{name}_us": ms * 1e3 for name in ("mean", "p50", "p95", "p99", "max")
              if (ms := amount(one, f"{name}_ms")) is not None}
        entries.append(Requests(text(one, "type"), text(one, "name"), int(amount(one, "requests") or 0),
                                int(amount(one, "failures") or 0), amount(one, "rate") or 0.0, us))
    errors = tuple((text(one, "type"), text(one, "name"), text(one, "error", 400), int(amount(one, "count") or 0))
                   for value in (listed(data, "errors") if "errors" in data else ()) for one in (table(value,
                                                                                                       "an error"),))
    messages = {name[:40]: int(n) for name, n in _numbers(inner(data, "messages")).items() if n >= 0}
    own = inner(data, "generator")
    return Locust(text(data, "broker"), text(data, "started"), int(amount(data, "users") or 0),
                  amount(data, "seconds") or 0.0, tuple(entries), errors, messages, amount(own, "cpu_us_per_request"),
                  flag(own, "limit", False), flag(data, "complete", True), text(data, "why", 1000))
