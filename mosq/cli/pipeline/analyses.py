"""Define `match`, `capacity`, `report` and `load-results`, the queries over tables. Each imports Spark when it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mosq.cli.pipeline.options import EXIT_OK, HELP, guarded, json_option, master_option, settings_option
from mosq.pipeline import MosqPipelineError
from mosq.tools.bench.html.steps import Steps
from mosq.tools.table import shown, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mosq.pipeline.report.gather import Tables
    from mosq.pipeline.settings import Settings

EXIT_PARTS = 2
HIDDEN = ("traffic",)  # views that the report does not show
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Only results and errors.")


def _session(master: str | None, conf: dict[str, str], steps: Steps) -> SparkSession:
    from mosq.pipeline.session import spark_session

    steps("starting Spark")
    # Spark's own progress bar of stages and tasks, on a terminal
    bar = {"spark.ui.showConsoleProgress": "true"} if steps.over and not steps.quiet else {}
    return spark_session("mosq pipeline", master=master, conf=bar | conf)


# ---------------------------------------------------------------- match

MATCH_EPILOG = """\b
Examples:
  mosq pipeline match topics.txt filters.txt                  the filters that match most topics
  mosq pipeline match topics.txt filters.txt --out pairs      every pair, as Parquet
  mosq pipeline match tables/bronze new.csv --clients --count client
  mosq pipeline match topics.txt mqtt://localhost --clients   the subscriptions of a broker
  mosq pipeline match tables/bronze tables/bronze --clients --count topic --limit 50

\b
TOPICS: a text file with a topic a line, a .csv or .parquet file with a column `topic`, or a
bronze table (the topics of its messages). FILTERS: the same with `filter`, a bronze table (the
current subscriptions), or mqtt://HOST:PORT, a broker with enable_control_api; with --clients
also `client_id` (in a text file before the filter, with a tab). Empty lines are skipped.

\b
Exit status:
  0  done
  1  failed; the message says what to do
  2  done, but bad topics or filters were left out: the first are printed with their lines
  3  an error in the command line
"""


@click.command(context_settings=HELP, epilog=MATCH_EPILOG)
@click.argument("topics", type=click.Path())
@click.argument("filters", type=click.Path())
@click.option("--clients", is_flag=True, help="Match per client: FILTERS has the client id of each filter.")
@click.option("--count", type=click.Choice(("topic", "filter", "client")),
              help="Print counts for each of these instead of pairs.")
@click.option("--out", metavar="DIR", type=click.Path(),
              help="Write all rows into this folder; without it, print the first.")
@click.option("--format", "kind", type=click.Choice(("parquet", "csv")), default="parquet", show_default=True,
              help="Format of the files of --out.")
@click.option("--limit", metavar="N", default=20, show_default=True, type=click.IntRange(0, 100_000),
              help="Largest number of rows to print without --out.")
@master_option
@quiet_option
@guarded
def match(                              # parameters: one for each option of the command
        topics: str, filters: str, clients: bool, count: str | None, out: str | None, kind: str, limit: int,
        master: str | None, quiet: bool) -> int:
    """Match TOPICS (millions) with FILTERS (hundreds of thousands) by the broker's own index."""
    if count == "client" and not clients:
        raise click.UsageError("--count client needs --clients: FILTERS must have client ids.")
    if out is not None and Path(out).exists():
        raise MosqPipelineError(f"{out} exists already: remove it, or name another folder")
    steps = Steps(quiet)
    try:
        return _match(_session(master, {}, steps), topics, filters, clients, count, out, kind, limit, steps)
    finally:
        steps.end()


def _match(                             # parameters: one for each option of `match`
        spark: SparkSession, topics: str, filters: str, clients: bool, count: str | None, out: str | None, kind: str,
        limit: int, steps: Steps) -> int:
    from mosq.pipeline.matching import BAD, Matching
    from mosq.pipeline.matching_files import bad_topics, read_filters, read_topics, write_csv

    steps(f"reading {filters}")
    read = read_filters(spark, filters, clients)
    if not len(read.rows):
        first = next(read.bad.lines(), "it is empty")
        raise MosqPipelineError(f"{filters}: there is no filter in it ({first})")
    work, frame = Matching(spark, read.rows), read_topics(spark, topics)
    steps(f"matching with {work.n:,} filters")
    bad = spark.sparkContext.accumulator(0)         # only an estimate: Spark adds again when it repeats a task
    if count in (None, "topic") and out is not None:
        rows = work.pairs(frame, bad.add) if count is None else work.per_topic(frame, bad.add)
    elif count == "topic":
        rows = work.per_topic(frame, bad.add)
    else:
        summed = work.sums(frame).cache()
        totals = {row.id: row.n for row in summed.where("id < 0").collect()}
        bad.add(totals.get(BAD, 0))
        _print_totals(totals, work.n, steps)
        rows = work.per_client(summed) if count == "client" else work.per_filter(summed)
    if out is not None:
        place = str(Path(out).absolute())
        if kind == "csv":
            write_csv(rows, place)
            written = spark.read.options(header=True, escape='"', multiLine=True).csv(place)
        else:
            rows.write.parquet(place)
            written = spark.read.parquet(place)
        steps.result(f"{out}: {written.count():,} rows")
    elif limit:
        _show(rows, limit)
    return _report_bad([read.bad] + ([bad_topics(spark, topics)] if bad.value else []), steps)


def _print_totals(totals: dict[int, int], filters: int, steps: Steps) -> None:
    from mosq.pipeline.matching import DELIVERIES, TOPICS, UNMATCHED

    steps.result(f"{totals.get(TOPICS, 0):,} topics and {filters:,} filters: {totals.get(DELIVERIES, 0):,} deliveries "
                 f"if each topic had one message; {totals.get(UNMATCHED, 0):,} topics match no filter")


def _show(rows: Any, limit: int) -> None:
    from pyspark.sql import functions as f

    figure = next(name for name in ("topics", "deliveries") if name in rows.columns)
    found = rows.orderBy(f.desc(figure), rows.columns[0]).limit(limit).collect()
    _lines(rows.columns, found)


def _lines(columns: list[str], rows: list[Any]) -> None:
    heads = tuple(name.upper() for name in columns)
    for line in table([heads, *(tuple(shown(_cell(value)) for value in row) for row in rows)]):
        click.echo(line)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:,.6g}" if isinstance(value, float) else str(value)


def _report_bad(parts: list[Any], steps: Steps) -> int:
    steps.end()
    for one in parts:
        for line in one.lines():
            click.echo(f"Warning: {shown(line)}: left out", err=True)
    return EXIT_PARTS if any(one.count for one in parts) else EXIT_OK


# ---------------------------------------------------------------- capacity

CAPACITY_EPILOG = """\b
Examples:
  mosq pipeline capacity                            with the formulas, their inputs and the savings
  mosq $(mosq pipeline capacity --flags) -c mosq.conf
  mosq pipeline capacity --json | jq .configuration

\b
The advice is computed from the bronze table: messages, and the broker's events (stream_events
true). Each formula is in docs/pipeline.md.
"""


@click.command(context_settings=HELP, epilog=CAPACITY_EPILOG)
@settings_option
@master_option
@click.option("--flags", "only_flags", is_flag=True, help="Print only the flags, in one line, for a shell.")
@json_option
@quiet_option
@guarded
def capacity(file: str, master: str | None, only_flags: bool, as_json: bool, quiet: bool) -> int:
    """Compute options of the broker for the observed traffic: pool, index, queues."""
    from mosq._core import CONTEXT_BYTES
    from mosq.pipeline import settings as settings_file
    from mosq.pipeline.capacity import plan
    from mosq.pipeline.frames import frame
    from mosq.pipeline.observed import observe

    settings = settings_file.load(file)
    steps = Steps(quiet or only_flags or as_json)
    try:
        spark = _session(master or settings.master, settings.spark, steps)
        steps("analysing the traffic")
        found = plan(observe(frame(spark, settings, "bronze")), CONTEXT_BYTES)
    finally:
        steps.end()
    if as_json:
        click.echo(json.dumps(found.as_dict(), indent=1))
    elif only_flags:
        click.echo(" ".join(found.flags()))
    else:
        for line in found.text():
            click.echo(line)
    return EXIT_OK


# ---------------------------------------------------------------- report

REPORT_EPILOG = """\b
Examples:
  mosq pipeline report                              writes report/report.html and CSV files
  mosq pipeline report -s site.toml --out /srv/www/mqtt --load perf/results/bench

\b
The page is one file without references: it can be mailed, printed, or read on a phone.
"""


@click.command(context_settings=HELP, epilog=REPORT_EPILOG)
@settings_option
@master_option
@click.option("--out", metavar="DIR", default="report", show_default=True, type=click.Path(),
              help="Folder for the page and the CSV files.")
@click.option("--load", metavar="DIR", type=click.Path(), help="Add results of `mosq bench` or the lab to the page.")
@quiet_option
@guarded
def report(file: str, master: str | None, out: str, load: str | None, quiet: bool) -> int:
    """Make a page and CSV files of the tables: traffic, clients, latency, drops, sessions, the audit."""
    from mosq.pipeline import settings as settings_file

    settings = settings_file.load(file)
    steps = Steps(quiet)
    try:
        spark = _session(master or settings.master, settings.spark, steps)
        from mosq.pipeline.report.make import write

        more = []
        if load is not None:
            from mosq.pipeline.load_results import LoadResults
            from mosq.pipeline.report.load import sections

            more = sections(LoadResults(spark, load))
        found = _tables(spark, settings, steps)
        written = write(Path(out), f"MQTT traffic of {settings.file.parent.name}", found, steps, more)
    finally:
        steps.end()
    steps.result(f"{written[0]}, and {len(written) - 1} CSV files beside it")
    return EXIT_OK


def _tables(spark: SparkSession, settings: Settings, steps: Steps) -> Tables:
    """Return the tables that the jobs have written."""
    from mosq.pipeline import fanout, frames, views
    from mosq.pipeline.report.gather import Lag, Tables
    from mosq.pipeline.runs import progress, status
    from mosq.pipeline.trouble import plain_errors

    there = frames.snapshots(settings)
    if "bronze" not in there:
        raise frames.missing(settings)
    try:
        lag = [Lag(name, one["rows"], one["behind"], one["behind_s"])
               for name, one in status.lag(settings, progress.after(settings)).items()]
    except (MosqPipelineError, OSError, ValueError):
        lag = []                                    # the journal may be on another machine
    if "gold/traffic" in there:
        steps("matching topics with subscriptions")
        try:
            with plain_errors(settings):
                fanout.write(spark, settings)
        except (MosqPipelineError, OSError) as error:       # no permission to write the tables, or the disk is full
            steps.result(f"{error}: the page shows the older fan-out")
    there = frames.snapshots(settings)
    return Tables(
        {name: frames.view(spark, settings, name) for name in views.possible(there) if name not in HIDDEN},
        frames.frame(spark, settings, "bronze"),
        frames.frame(spark, settings, "quarantine") if "quarantine" in there else None,
        lag, settings.tables)


# ---------------------------------------------------------------- load-results

LOAD_EPILOG = """\b
Examples:
  mosq pipeline load-results perf/results/bench            medians of each measurement
  mosq pipeline load-results perf/results/paper --csv out  medians.csv and runs.csv of Spark
  mosq pipeline load-results results --sql "SELECT broker, max(rate) FROM runs GROUP BY broker"

\b
DIR: what `make paper`, `make bench` and `make load` write, and files of `mosq bench --json` and
--parquet. Tables for --sql: runs (a row for each phase of each run), medians, locust.
"""


@click.command("load-results", context_settings=HELP, epilog=LOAD_EPILOG)
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option("--csv", "csv_folder", metavar="DIR", type=click.Path(), help="Write the tables as CSV files.")
@click.option("--sql", metavar="QUERY", help="Print the result of this query instead.")
@click.option("--limit", metavar="N", default=40, show_default=True, type=click.IntRange(1, 100_000),
              help="Largest number of rows to print.")
@master_option
@quiet_option
@guarded
def load_results(folder: str, csv_folder: str | None, sql: str | None, limit: int, master: str | None,
                 quiet: bool) -> int:
    """Read results of the performance lab into Spark: print the paper's tables, or the result of a query."""
    from mosq.pipeline import load_results as results

    steps = Steps(quiet)
    try:
        spark = _session(master, {}, steps)
        steps(f"reading {folder}")
        found = results.LoadResults(spark, folder)
        if csv_folder is not None:
            for path in found.write_csv(Path(csv_folder)):
                steps.result(str(path))
        rows = results.query_result(found, sql) if sql is not None else found.paper_table()
        columns, shown_rows = rows.columns, rows.limit(limit).collect()
    finally:
        steps.end()
    _lines(columns, shown_rows)
    for problem in found.problems:
        click.echo(f"Warning: {shown(problem)}", err=True)
    return EXIT_PARTS if found.problems else EXIT_OK


COMMANDS: tuple[click.Command, ...] = (match, capacity, report, load_results)
