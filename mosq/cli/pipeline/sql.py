"""Define `mosq pipeline sql`: queries over the tables and views with DuckDB, which this module imports when it runs."""

from __future__ import annotations

import csv
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from mosq.cli.pipeline.options import EXIT_FAILED, EXIT_OK, HELP, guarded, settings_option
from mosq.pipeline import MosqPipelineError
from mosq.tools.table import shown, table

if TYPE_CHECKING:
    from mosq.pipeline.duck import Duck

PROMPT, MORE = "mosq> ", "   -> "
CELL_MAX = 60
EPILOG = """\b
Examples:
  mosq pipeline sql "SELECT topic, sum(messages) AS n FROM topics GROUP BY topic ORDER BY n DESC"
  mosq pipeline sql --format csv "SELECT * FROM sessions" > sessions.csv
  mosq pipeline sql < questions.sql
  mosq pipeline sql                                 asks for statements, each up to a semicolon

\b
Tables: bronze, silver_NAME, quarantine, gold_NAME, progress, removed. Views: topics, clients,
prefixes, traffic, latency, drops, churn, sessions, backlog, audit, late, fanout, devices, presence,
last_values, gaps, rates, telemetry; of a Sparkplug rule named_NAME, metrics_NAME (docs/pipeline.md).
Each statement sees the newest rows; nothing is written to the tables.
"""


@click.command("sql", context_settings=HELP, epilog=EPILOG)
@click.argument("query", required=False)
@settings_option
@click.option("--format", "how", type=click.Choice(("table", "csv", "json")), default="table", show_default=True,
              help="Form of the result; json: one object a line.")
@click.option("--limit", metavar="N", default=200, show_default=True, type=click.IntRange(1),
              help="Largest number of rows to print as a table.")
@guarded
def sql(query: str | None, file: str, how: str, limit: int) -> int:
    """Query the tables and views with DuckDB; without QUERY, read statements from standard input."""
    from mosq.pipeline import settings as settings_file
    from mosq.pipeline.duck import Duck

    duck = Duck(settings_file.load(file))
    try:
        if query is None and sys.stdin.isatty():
            return _ask(duck, how, limit)
        _answer(duck, sys.stdin.read() if query is None else query, how, limit)
        return EXIT_OK
    finally:
        duck.close()


def _ask(duck: Duck, how: str, limit: int) -> int:
    """Answer statements until the end of the input; an error ends only its own statement."""
    import readline  # noqa: F401  # `input` uses it for its history

    click.echo(f"Tables: {', '.join(duck.tables)}\nViews:  {', '.join(duck.views)}\nCtrl-D ends.")
    status = EXIT_OK
    waiting = ""
    while True:
        try:
            waiting += input(MORE if waiting else PROMPT) + "\n"
        except (EOFError, KeyboardInterrupt):
            click.echo()
            return status
        if not waiting.strip():
            waiting = ""
        elif waiting.rstrip().endswith(";"):
            try:
                duck.refresh()
                _answer(duck, waiting, how, limit)
                status = EXIT_OK
            except MosqPipelineError as error:
                click.echo(f"Error: {error}", err=True)
                status = EXIT_FAILED
            waiting = ""


def _answer(duck: Duck, query: str, how: str, limit: int) -> None:
    for i, found in enumerate(duck.queries(query)):
        if i and how != "json":
            click.echo()
        _print(found, how, limit)


def _print(found: Any, how: str, limit: int) -> None:
    columns = found.column_names
    if how == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        for batch in found.to_batches():
            writer.writerows([_text(value) for value in row] for row in _rows(batch))
    elif how == "json":
        for batch in found.to_batches():
            for row in batch.to_pylist():
                click.echo(json.dumps(row, default=_text, ensure_ascii=False))
    else:
        for line in as_table(columns, _rows(found.slice(0, limit))):
            click.echo(line)
        if found.num_rows > limit:
            click.echo(f"({found.num_rows - limit:,} more rows: --limit {found.num_rows})", err=True)


def _rows(found: Any) -> list[tuple[Any, ...]]:
    """Return the rows of an Arrow table; two columns may have one name."""
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def as_table(columns: list[str], rows: list[tuple[Any, ...]]) -> list[str]:
    """Return the lines of a result; long texts are cut."""
    cells = [tuple(shown(_short(_text(value))) for value in row) for row in rows]
    return list(table([tuple(shown(name) for name in columns), *cells]))


def _short(text: str) -> str:
    return text if len(text) <= CELL_MAX else text[: CELL_MAX - 3] + "..."


def _text(value: Any) -> str:
    """Return a value as text: bytes as UTF-8, times in UTC without their zone, null as nothing."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if hasattr(value, "utcoffset") and hasattr(value, "year"):
        return str(value.replace(tzinfo=None).isoformat(" "))
    if isinstance(value, float):
        return repr(value).removesuffix(".0")        # as many digits as it takes to read the same value again
    if isinstance(value, (dict, list)):
        return json.dumps(value, default=_text, ensure_ascii=False)
    return str(value)
