"""Define `mosq pipeline` and its commands. Each imports Spark when it runs."""

from typing import TYPE_CHECKING, Any

import click

from mosq.cli.pipeline.analyses import COMMANDS
from mosq.cli.pipeline.jars import jars
from mosq.cli.pipeline.options import (
    EXIT_ALARM,
    EXIT_FAILED,
    EXIT_OK,
    HELP,
    guarded,
    json_option,
    master_option,
    settings_option,
)
from mosq.cli.pipeline.package import package
from mosq.cli.pipeline.repair import COMMANDS as REPAIR
from mosq.cli.pipeline.sql import sql
from mosq.pipeline import MosqPipelineError
from mosq.tools.table import shown

if TYPE_CHECKING:
    from mosq.pipeline.settings import Settings

EPILOG = """\b
Examples:
  mosq pipeline doctor                              check the needs of the pipeline
  mosq pipeline init . --config /etc/mosquitto/mosquitto.conf
  mosq pipeline run --once                          read the current records
  mosq pipeline run                                 also read new ones, until Ctrl-C
  mosq pipeline status --audit                      show the progress and the audit
  mosq pipeline verify                              compare journal and tables
  mosq pipeline sql "SELECT * FROM topics LIMIT 10" query the tables
  mosq pipeline report                              make a page

\b
Exit status:
  0  done; for `doctor` and `status`: no problem
  1  not done; the message has advice
  2  an alarm: messages of a session, or tables (`verify`), do not add up
  3  an error in the command line
"""


@click.group(epilog=EPILOG, context_settings=HELP)
def pipeline() -> None:
    """Make tables, audits and reports of the broker's messages with Spark (docs/pipeline.md)."""


@pipeline.command(context_settings=HELP)
@click.argument("where", metavar="DIR|FILE", default=".", type=click.Path())
@click.option(
    "--config", metavar="FILE", type=click.Path(), help="The broker's mosquitto.conf, which locates the streams."
)
@click.option("--journal", metavar="DIR", type=click.Path(), help="Folder of the streams, instead of --config.")
@guarded
def init(where: str, config: str | None, journal: str | None) -> int:
    """Write first settings, and create their folders."""
    from mosq.pipeline.runs import first

    if config is None and journal is None:
        journal = click.prompt("Folder of the broker's streams", default=first.JOURNAL)
    made = first.init(where, config, journal)
    for line in made:
        click.echo(line)
    return EXIT_OK


@pipeline.command(context_settings=HELP)
@click.argument("jobs", nargs=-1, type=click.Choice(("silver", "gold", "audit")))
@settings_option
@master_option
@click.option("--once", "how", flag_value="once", help="Read the current records, and end.")
@click.option(
    "--follow", "how", flag_value="follow", default=True, help="Also read new ones, until Ctrl-C or SIGTERM.  [default]"
)
@click.option("--rebuild", "how", flag_value="rebuild", help="Compute all but bronze again from bronze, and end.")
@click.option("-q", "--quiet", is_flag=True, help="Print no line for each batch.")
@guarded
def run(jobs: tuple[str, ...], file: str, master: str | None, how: str, quiet: bool) -> int:
    """Read the streams into tables: bronze, and the JOBS silver, gold and audit (default: all)."""
    from mosq.pipeline import session
    from mosq.pipeline import settings as settings_file
    from mosq.pipeline.runs import jobs as work
    from mosq.pipeline.runs import progress
    from mosq.pipeline.runs.live import Live

    settings = settings_file.load(file)
    wanted = jobs or progress.JOBS
    live = Live(settings, quiet)
    # the lock and the checks come before Spark, which takes seconds to start
    with work.alone(settings, live.log) as lock:
        progress.check(settings, progress.setup(settings, wanted), rebuilding=how == "rebuild")
        if "silver" in wanted and not settings.silver:
            live.log(f"{settings.file} has no [[silver]] rule: bronze and gold are filled, and there are no typed rows")
        live.log(f"starting Spark ({master or settings.master}), which takes some seconds")
        spark = _session(settings, master, (lock.fd,))
        try:
            work.check_cluster(spark, settings, live.log)
            with work.stopped_by_signals() as stop:
                if how == "rebuild":
                    work.run_rebuild(spark, settings, jobs=wanted, log=live.log, stop=stop, lock=lock)
                else:
                    work.run(spark, settings, once=how == "once", jobs=wanted, log=live.log, report=live.report,
                             stop=stop, lock=lock)
        finally:
            live.end()
            session.stop(spark)
    return _alarm(settings)


def _session(settings: "Settings", master: str | None, pass_fds: "tuple[int, ...]") -> Any:
    from mosq.pipeline.session import spark_session

    return spark_session("mosq pipeline", master=master or settings.master, conf=settings.spark, pass_fds=pass_fds)


def _alarm(settings: "Settings") -> int:
    from mosq.pipeline.runs import progress, status

    found = progress.after(settings)["audit"]
    if found["lost_events"]:
        click.echo(
            f"Warning: {found['lost_events']:,} events could not be written or read: the audit is not complete.",
            err=True,
        )
    if not found["wrong"]:
        return EXIT_OK
    click.echo(
        f"ALARM: {found['wrong']:,} rows of the audit do not add up; `mosq pipeline status --audit` shows details:",
        err=True,
    )
    for line in status.unbalanced(settings):
        click.echo(f"  {shown(line)}", err=True)
    return EXIT_ALARM


@pipeline.command(context_settings=HELP)
@settings_option
@click.option(
    "--audit",
    "with_audit",
    is_flag=True,
    help="Also show sessions that do not add up, and the outcome of all messages.",
)
@json_option
@guarded
def status(file: str, with_audit: bool, as_json: bool) -> int:
    """Show the tables, how far they are behind the journal, and whether the audit adds up."""
    import json

    from mosq.pipeline import settings as settings_file
    from mosq.pipeline.runs import status as found

    values = found.status(settings_file.load(file), with_audit)
    click.echo(json.dumps(values, ensure_ascii=False, indent=1) if as_json else found.text(values))
    return EXIT_ALARM if values["audit"]["wrong"] or values["audit"].get("sessions_wrong") else EXIT_OK


@pipeline.command(context_settings=HELP)
@settings_option
@click.option(
    "--at-least",
    default=8,
    show_default=True,
    metavar="N",
    type=click.IntRange(2),
    help="Merge the small files of a date if there are as many.",
)
@guarded
def compact(file: str, at_least: int) -> int:
    """Merge small files, delete old rows and replaced files, also while other processes use the tables."""
    from mosq.pipeline import settings as settings_file
    from mosq.pipeline.runs import tending

    for line in tending.compact_all(settings_file.load(file), at_least):
        click.echo(line)
    return EXIT_OK


@pipeline.command(context_settings=HELP)
@settings_option
@click.option("--client", metavar="ID", help="Erase the rows of this client id.")
@click.option("--topic", metavar="TOPIC", help="Erase the rows of this topic.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@guarded
def erase(file: str, client: str | None, topic: str | None, yes: bool) -> int:
    """Erase the rows of a client, of a topic, or of a client on a topic, from all tables."""
    from mosq.pipeline import settings as settings_file
    from mosq.pipeline.runs import tending

    if client is None and topic is None:
        raise click.UsageError("--client or --topic is missing.")
    settings = settings_file.load(file)
    if not yes:
        try:
            click.confirm(f"Erase these rows from all tables in {settings.tables}?", abort=True)
        except click.Abort:
            raise MosqPipelineError("not confirmed, so nothing is erased; --yes erases without a question") from None
    n = tending.erase(settings, client, topic, click.echo)
    then = "; `run` or `compact` deletes the files that had them, ten minutes from now or later" if n else ""
    click.echo(f"{n:,} rows erased{then}")
    return EXIT_OK


@pipeline.command(context_settings=HELP)
@settings_option
@click.option(
    "--master", metavar="URL", help="Also check the executors of this cluster: packages, journal, place of the tables."
)
@json_option
@guarded
def doctor(file: str, master: str | None, as_json: bool) -> int:
    """Check the needs of the pipeline on this machine, and print how to fix each problem."""
    import json

    from mosq.pipeline.runs import doctor as looks

    found = looks.examine(file, master)
    bad = [one for one in found if not one.ok]
    if as_json:
        # `fix` also under the name that earlier versions printed
        click.echo(json.dumps([one._asdict() | {"mend": one.fix} for one in found], ensure_ascii=False, indent=1))
        return EXIT_FAILED if bad else EXIT_OK
    for one in found:
        click.echo(f"{'ok  ' if one.ok else 'BAD '} {one.what}: {one.found}")
        if not one.ok:
            click.echo(f"     -> {one.fix}")
    click.echo(
        "All checks passed." if not bad else f"{len(bad)} problem{'s' * (len(bad) > 1)} found."
    )
    return EXIT_FAILED if bad else EXIT_OK


for _command in (*COMMANDS, *REPAIR, sql, jars, package):
    pipeline.add_command(_command)
