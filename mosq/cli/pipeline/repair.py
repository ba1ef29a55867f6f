"""Define `mosq pipeline verify` and `adopt`: whether journal and tables add up, and how they go on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from mosq.cli.pipeline.options import EXIT_ALARM, EXIT_OK, HELP, guarded, json_option, settings_option
from mosq.tools.table import shown, table
from mosq.tools.terminal import Bars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosq.pipeline.runs.verify import Found

LISTED = 20
VERIFY_EPILOG = """\b
Examples:
  mosq pipeline verify                              while `run` runs, or not
  mosq pipeline verify --json | jq '.faults[] | select(.table == "bronze")'

\b
Each number of each shard is compared: the journal has it, bronze has it once, and the silver table
of its rule or the quarantine has it once. The sums of gold are compared with bronze, window by
window. Rows that retention or `erase` deleted are no fault.

\b
Exit status:
  0  everything adds up
  1  not compared; the message has advice
  2  something does not add up: the ranges are listed
  3  an error in the command line
"""


@click.command("verify", context_settings=HELP, epilog=VERIFY_EPILOG)
@settings_option
@json_option
@guarded
def verify(file: str, as_json: bool) -> int:
    """Compare journal, bronze, silver, quarantine and gold, number by number."""
    from mosq.pipeline import settings as settings_file
    from mosq.pipeline.runs import verify as work

    settings, bars = settings_file.load(file), Bars(as_json)
    try:
        found = work.verify(settings, lambda rows: bars.begin("comparing", rows))
    finally:
        bars.end()
    if as_json:
        click.echo(json.dumps(found.as_dict(), ensure_ascii=False, indent=1))
    else:
        for line in lines(found):
            click.echo(shown(line))
    return EXIT_OK if found.adds_up else EXIT_ALARM


def lines(found: Found) -> Iterator[str]:
    """Format the result for the terminal."""
    heads = ("from", "to", "journal", "bronze", "gaps", "removed", "missing", "doubled")
    if found.shards:
        rows = [(name, *(str(one[head]) for head in heads)) for name, one in found.shards.items()]
        yield from table([("NODE/STREAM/SHARD", *map(str.upper, heads)), *rows])
    for name, counts in sorted(found.tables.items()):
        yield f"{name}: " + ", ".join(f"{n:,} {key}" for key, n in counts.items() if n or key in ("rows", "windows"))
    for note in found.notes:
        yield f"Note: {note}"
    for one in found.faults[:LISTED]:
        where = "/".join(str(one[key]) for key in ("node", "stream", "shard") if one.get(key, "") != "")
        which = f"{one['from']:,} to {one['to']:,}" if "from" in one else one["window_start"]
        yield f"FAULT {one['table']}: {where}, {which}: {one['what']} ({one['n']:,})"
    if len(found.faults) > LISTED:
        yield f"FAULT: {len(found.faults) - LISTED:,} further ranges; --json lists them"
    yield f"Everything adds up, up to batch {found.batch:,}." if found.adds_up else (
        f"{len(found.faults):,} ranges do not add up: docs/pipeline.md, Repair."
    )


ADOPT_EPILOG = """\b
Examples:
  mosq pipeline adopt && mosq pipeline run

\b
For tables whose checkpoint is lost, older or newer than they are: after a lost disk, a restored copy
of one of both, a power failure. Rows of a batch that not all tables have are deleted, and the next
run reads them again from the journal. The old checkpoint is kept beside the new one.
"""


@click.command("adopt", context_settings=HELP, epilog=ADOPT_EPILOG)
@settings_option
@guarded
def adopt(file: str) -> int:
    """Make a checkpoint that begins behind the last batch of the tables, so that `run` goes on."""
    from mosq.pipeline import settings as settings_file
    from mosq.pipeline.runs import adopt as work

    work.adopt(settings_file.load(file), lambda line: click.echo(shown(line)))
    return EXIT_OK


MIGRATE_EPILOG = """\b
Examples:
  mosq pipeline migrate && mosq pipeline run

\b
For tables that an earlier version of mosq wrote. Tables before Delta: bronze is copied, and silver,
quarantine and gold are computed from it. Rows that bronze lacks are read from the journal. The new
tables are compared with the journal, and take the place of the old ones, which stay in the folder
before-delta. That needs free space as large as the old tables. A killed migration is repeated, and
goes on where it was.
"""


@click.command("migrate", context_settings=HELP, epilog=MIGRATE_EPILOG)
@settings_option
@guarded
def migrate(file: str) -> int:
    """Bring tables of an earlier version of mosq to this one, so that `run` goes on."""
    from mosq.pipeline import settings as settings_file
    from mosq.pipeline.earlier import migrate as work

    settings, bars = settings_file.load(file), Bars(quiet=False)

    def log(line: str) -> None:
        bars.end()
        click.echo(shown(line))

    try:
        work.migrate(settings, log, bars.begin)
    finally:
        bars.end()
    return EXIT_OK


COMMANDS: tuple[click.Command, ...] = (verify, adopt, migrate)
