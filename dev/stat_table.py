"""Writes everything that lists the statistics of the broker from the one declaration dev/statistics.toml.

    dev/statistics.toml -> cext/broker/core/stats.pxd        enumerations, between two markers
                        -> cext/broker/admin/sys_topics.pxd  `$SYS` topics
                        -> mosq/stat_names.py                names for Python
                        -> docs/sys.md                       documentation

Without arguments it writes the files. With --check it prints the names of files that are not current, and fails if
there are any. Needs the standard library only.
"""

import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DECLARATION = "dev/statistics.toml"
BEGIN = "# statistics: dev/statistics writes these enumerations from dev/statistics.toml"
END = "# statistics: end"
SOURCE = f"dev/statistics writes this file from {DECLARATION}."


@dataclass
class Stat:
    """A statistic of the broker."""

    name: str
    help: str
    unit: str = "messages"
    alias: str = ""
    topics: list[str] = field(default_factory=list)     # below $SYS/broker/
    load: str = ""                  # below $SYS/broker/load/
    store: bool = False             # True: published only by a broker with a store
    workers: bool = False           # True: published only by a broker with several workers
    hundredths: bool = False        # True: the value counts hundredths, and only $SYS has it

    @property
    def constant(self) -> str:
        return f"STAT_{self.name.upper()}"


@dataclass
class Reason:
    """A reason of a drop or of a refusal."""

    name: str
    help: str
    c: str = ""                     # end of the constant's name; "": the name


@dataclass
class Gauge:
    """A gauge of each stream."""

    name: str
    topic: str                      # below $SYS/broker/streams/NAME/
    help: str


class Table:
    """The declaration, checked. Raises ValueError or TypeError if it makes no sense."""

    def __init__(self, text: str) -> None:
        given = tomllib.loads(text)
        self.drops = [Reason(**row) for row in given["drop"]]
        self.refusals = [Reason(**row) for row in given["refused"]]
        self.streams = [Gauge(**row) for row in given["stream"]]
        self.stats = [Stat(**row) for row in given["stat"]]
        self.stats += [Stat(f"drops_{one.name}", one.help, topics=[f"dropped/{one.name}"]) for one in self.drops]
        self.stats += [Stat(f"refused_{one.name}", one.help, "CONNECT packets") for one in self.refusals]
        self.systree: list[str] = given["systree"]
        self.systree_store: list[str] = given["systree_store"]
        self.topics = {topic: stat for stat in self.stats for topic in stat.topics}
        for names in ([name for stat in self.stats for name in (stat.name, stat.alias) if name],
                      [topic for stat in self.stats for topic in stat.topics]):
            twice = {name for name in names if names.count(name) > 1}
            if twice:
                raise ValueError(f"{DECLARATION} declares twice: {', '.join(sorted(twice))}")
        unknown = {*self.systree, *self.systree_store} - self.topics.keys()
        if unknown:
            raise ValueError(f"{DECLARATION} declares no topic {', '.join(sorted(unknown))}")


def enumeration(what: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield "cdef enum:"
    yield f"    # {what}"
    for number, (constant, help) in enumerate(rows):
        yield f"    {constant} = {number}{' ' * max(2, 32 - len(constant) - len(str(number)))}# {help}"
    yield ""


def enumerations(table: Table) -> str:
    def reasons(prefix: str, rows: list[Reason]) -> list[tuple[str, str]]:
        named = [(f"{prefix}_{(one.c or one.name).upper()}", one.help.replace("`", "")) for one in rows]
        return [*named, (f"{prefix}_REASONS", f"number of {prefix} reasons")]

    stats = [(one.constant, one.unit) for one in table.stats]
    gauges = [(f"GAUGE_{one.name.upper()}", one.help.replace("`", "")) for one in table.streams]
    first_drop = len(table.stats) - len(table.refusals) - len(table.drops)
    return "\n".join([
        BEGIN,
        *enumeration("reasons of a drop: position in Stats.drops", reasons("DROP", table.drops)),
        *enumeration("reasons of a refusal: position in Stats.refused", reasons("REFUSED", table.refusals)),
        *enumeration("position in ControlRequest.stats, with the unit", [*stats, ("STATS_N", "number of statistics")]),
        *enumeration("position in Stream.gauges", [*gauges, ("STREAM_GAUGES", "number of gauges")]),
        "cdef enum:",
        f"    STAT_DROPS = {first_drop}           # position of the first drop reason",
        f"    STAT_REFUSED = {first_drop + len(table.drops)}         # position of the first refusal",
        f"    SYS_LOADS_N = {sum(bool(one.load) for one in table.stats)}           # number of load averages",
        f"    SYS_TOPICS_N = {sum(len(one.topics) for one in table.stats)}         # number of topics with a statistic",
        END])


def sys_topics(table: Table) -> str:
    rows = [f'        {{"{topic}", {place}, {int(one.hundredths)}, {when(one)}}},'
            for place, one in enumerate(table.stats) for topic in one.topics]
    loads = [f'        {{"{one.load}", {place}}},' for place, one in enumerate(table.stats) if one.load]
    gauges = ", ".join(f'"{one.topic}"' for one in table.streams)
    return f'''# Topics below $SYS/broker/ and the statistics that they show. {SOURCE}
cdef extern from *:
    """
    typedef struct {{
        const char *topic;          /* below $SYS/broker/ */
        int stat;                   /* STAT_... */
        unsigned char hundredths;   /* 1: the value counts hundredths */
        unsigned char when;         /* SYS_... */
    }} SysTopic;
    typedef struct {{
        const char *name;           /* below $SYS/broker/load/ */
        int stat;                   /* STAT_... */
    }} SysLoad;
    enum {{ SYS_ALWAYS, SYS_WITH_STORE, SYS_WITH_WORKERS, SYS_ABOVE_ZERO }};
    static const SysTopic SYS_TOPICS[] = {{
{chr(10).join(rows)}
    }};
    static const SysLoad SYS_LOADS[] = {{
{chr(10).join(loads)}
    }};
    static const char *const SYS_GAUGES[] = {{{gauges}}};
    """
    ctypedef struct SysTopic:
        const char* topic
        int stat
        unsigned char hundredths
        unsigned char when
    ctypedef struct SysLoad:
        const char* name
        int stat
    enum:
        SYS_ALWAYS                  # published whenever it changed
        SYS_WITH_STORE              # published only by a broker with a store
        SYS_WITH_WORKERS            # published only by a broker with several workers
        SYS_ABOVE_ZERO              # published from the first drop on
    const SysTopic* SYS_TOPICS      # SYS_TOPICS_N of them
    const SysLoad* SYS_LOADS        # SYS_LOADS_N of them
    const char** SYS_GAUGES         # STREAM_GAUGES of them: names below $SYS/broker/streams/NAME/
'''


def when(one: Stat) -> str:
    if one.name.startswith("drops_"):
        return "SYS_ABOVE_ZERO"
    return "SYS_WITH_STORE" if one.store else "SYS_WITH_WORKERS" if one.workers else "SYS_ALWAYS"


def tuple_of(rows: Iterable[str]) -> str:
    return "".join(f"    {row},\n" for row in rows)


def names(table: Table) -> str:
    def topics(listed: list[str]) -> str:
        return tuple_of(f'("{topic}", "{table.topics[topic].name}")' for topic in listed)

    stats = tuple_of("None" if one.hundredths else f'"{one.name}"' for one in table.stats)
    aliases = tuple_of(f'"{one.alias}": "{one.name}"' for one in table.stats if one.alias)
    return f'''"""The names of the broker's statistics, in the order of the data plane.

{SOURCE}
"""

# position in the data plane -> key in Engine.stats(); None: only $SYS shows the value
STATS = (
{stats})
# older keys of Engine.stats() that keep working -> current keys
ALIASES = {{
{aliases}}}
# number -> name, as in the statistics drops_NAME and in the events of streams
DROPS = (
{tuple_of(f'"{one.name}"' for one in table.drops)})
# number -> name, as in the statistics refused_NAME
REFUSALS = (
{tuple_of(f'"{one.name}"' for one in table.refusals)})
# topic below $SYS/broker/ -> key in Engine.stats(), in the order of /api/v1/systree
SYSTREE = (
{topics(table.systree)})
# the same of a broker with a store
SYSTREE_STORE = (
{topics(table.systree_store)})
'''


def page(table: Table) -> str:
    def row(topic: str, one: Stat) -> str:
        name = "" if one.hundredths else f"`{one.name}`"
        return f"| `{topic}` | {one.unit}{', two decimals' if one.hundredths else ''} | {one.help} | {name} |\n"

    always = "".join(row(topic, one) for topic, one in table.topics.items() if when(one) == "SYS_ALWAYS")
    store = "".join(row(topic, one) for topic, one in table.topics.items() if when(one) == "SYS_WITH_STORE")
    workers = "".join(row(topic, one) for topic, one in table.topics.items() if when(one) == "SYS_WITH_WORKERS")
    loads = "".join(f"| `{one.load}` | {one.unit} |\n" for one in table.stats if one.load)
    drops = "".join(f"| {number} | `{one.name}` | {one.help} |\n" for number, one in enumerate(table.drops))
    refusals = "".join(f"| `refused_{one.name}` | {one.help} |\n" for one in table.refusals)
    streams = "".join(f"| `{one.topic}` | {one.help} |\n" for one in table.streams)
    shown = {id(one) for one in table.topics.values()}
    other = "".join(f"| `{one.name}`{f', `{one.alias}`' if one.alias else ''} | {one.unit} | {one.help} |\n"
                    for one in table.stats if id(one) not in shown and not one.name.startswith("refused_"))
    return PAGE.format(always=always, store=store, workers=workers, loads=loads, drops=drops, refusals=refusals, streams=streams,
                       other=other)


PAGE = """\
# Statistics and `$SYS`

This page lists the counters and gauges of the broker: the topics below `$SYS/broker/`, and the keys of
`Engine.stats()`, which an embedding program, `mosq ctl broker getStats` and the HTTP API show. `dev/statistics`
generates it from `dev/statistics.toml`, from which the broker takes names and order, too.

## Example

```sh
mosquitto_sub -v -t '$SYS/broker/clients/#'
```

The broker publishes the topics retained every `sys_interval` seconds, and only if the value changed. `sys_interval 0`
disables `$SYS`. Each counter begins with 0 when the broker starts, also after `mosq upgrade`,
except those of upgrades.

## Topics below `$SYS/broker/`

| topic | unit | meaning | key in `Engine.stats()` |
|---|---|---|---|
{always}| `uptime` | text | seconds since the start, followed by the word `seconds` | |
| `version` | text | release of Mosquitto and of mosq | |

A broker with a store also publishes these topics ([storage.md](storage.md)):

| topic | unit | meaning | key in `Engine.stats()` |
|---|---|---|---|
{store}| `store/state` | text | `ok`, `full`, `error` or `memory` | |

A broker with several workers also publishes these topics ([workers.md](workers.md#one-broker-to-the-outside)):

| topic | unit | meaning | key in `Engine.stats()` |
|---|---|---|---|
{workers}
## Averages: `$SYS/broker/load/NAME/1min`, `5min`, `15min`

Each is an exponential moving average, per minute.

| name | counts |
|---|---|
{loads}
## Drops: `$SYS/broker/dropped/NAME`

A topic exists from the first drop on. The key in `Engine.stats()` is `drops_NAME`. Events in streams have the number
([journal.md](journal.md)).

| number | name | the message was dropped because |
|---|---|---|
{drops}
## Streams: `$SYS/broker/streams/STREAM/NAME`

| name | meaning |
|---|---|
{streams}
## Only in `Engine.stats()`

Where a line has two keys, the second is an older one with the same value.

| key | unit | meaning |
|---|---|---|
{other}
Refused connections:

| key | the connection was refused because |
|---|---|
{refusals}"""


def with_enumerations(text: str, table: Table) -> str:
    before, _, rest = text.partition(BEGIN)
    return before + enumerations(table) + rest.partition(END)[2]


def written(root: Path) -> dict[Path, str]:
    """Return each file with the text that it should have."""
    table = Table((root / DECLARATION).read_text())
    stats = root / "cext/broker/core/stats.pxd"
    return {
        stats: with_enumerations(stats.read_text(), table),
        root / "cext/broker/admin/sys_topics.pxd": sys_topics(table),
        root / "mosq/stat_names.py": names(table),
        root / "docs/sys.md": page(table),
    }


def main(words: list[str]) -> int:
    if words not in ([], ["--check"]):
        print(__doc__)
        return 2
    status = 0
    for path, text in written(ROOT).items():
        if path.exists() and path.read_text() == text:
            continue
        if words:
            print(f"{path.relative_to(ROOT)} is not current: run dev/statistics")
            status = 1
        else:
            path.write_text(text)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
