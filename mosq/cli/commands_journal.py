"""`mosq journal`: shows the contents of streams. Only reads, also while a broker writes them."""

import sys
from typing import TYPE_CHECKING

import click

from mosq.tools.terminal import progress_bar, silence_broken_pipe

if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_OK, EXIT_FAILED = 0, 1
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

EPILOG = """\b
DIR is a stream's folder, a store's, or the persistence_location.

\b
Examples:
  mosq journal stats /var/lib/mosquitto                     show the streams' sizes and consumers
  mosq journal check /var/lib/mosquitto                     look for damaged or missing records
  mosq journal dump mosquitto.db.store/streams/telemetry --limit 10
  mosq journal dump STREAM --from 2026-11-22T10:00:00Z --to 2026-11-22T11:00:00Z --filter 'plant/+/temp'
  mosq journal dump STREAM --from 5000000 --follow | jq .payload

\b
Exit status:
  0  done; for `check`: no damage found
  1  not done; for `check`: records are lost or damaged
  3  error in the command line
"""


def guarded(command: "Callable[[], int]") -> int:
    """Run a command; return its exit status. Errors of a folder are printed in one line."""
    from mosq.journal.folders import FolderError

    try:
        return command()
    except FolderError as error:
        click.echo(f"Error: {error}", err=True)
    except BrokenPipeError:  # `mosq journal dump ... | head`
        silence_broken_pipe()
        return EXIT_OK
    except FileNotFoundError as error:
        click.echo(
            f"Error: {error.filename or error}: the stream's mark is missing; start the broker, which rebuilds it from "
            "the segments",
            err=True,
        )
    except OSError as error:
        click.echo(f"Error: {error.filename or '?'}: {error.strerror or error}", err=True)
    return EXIT_FAILED


@click.group(epilog=EPILOG, context_settings=HELP)
def journal() -> None:
    """Show journal streams: the messages that the broker wrote into files."""


directory_argument = click.argument("directory", metavar="DIR", type=click.Path())
quiet_option = click.option("--quiet", is_flag=True, help="Show no progress bar.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each stream.")


@journal.command(context_settings=HELP)
@directory_argument
@json_option
def stats(directory: str, as_json: bool) -> int:
    """Show what the streams in DIR contain: records, bytes, segments, times, and the marks of their consumers."""

    def run() -> int:
        import json

        from mosq.journal.folders import streams_in
        from mosq.journal.report import figures, figures_text

        for path in streams_in(directory):
            counted = figures(path)
            click.echo(json.dumps(counted) if as_json else figures_text(counted))
        return EXIT_OK

    return guarded(run)


@journal.command(context_settings=HELP)
@directory_argument
@json_option
@quiet_option
def check(directory: str, as_json: bool, quiet: bool) -> int:
    """Read all records of the streams in DIR, and report damaged and missing ones."""

    def run() -> int:
        import json

        from mosq.journal.folders import streams_in
        from mosq.journal.report import check as check_stream
        from mosq.journal.report import check_text, records_of

        paths, whole = streams_in(directory), True
        with progress_bar("checking", sum(records_of(path) for path in paths), quiet) as bar:
            found = [check_stream(path, bar.update) for path in paths]
        for one in found:
            click.echo(json.dumps(one) if as_json else check_text(one))
            whole = whole and not one["lost"] and not one["consumers_damaged"]
        return EXIT_OK if whole else EXIT_FAILED

    return guarded(run)


@journal.command(context_settings=HELP)
@directory_argument
@click.option(
    "--from",
    "begin",
    metavar="SEQ|TIME",
    help="Begin at this sequence number or time.  [default: the oldest record]",
)
@click.option("--to", "end", metavar="SEQ|TIME",
              help="End before this sequence number or time.  [default: the newest record]")
@click.option("--shard", metavar="N", type=click.IntRange(0, 65 * 64 - 1),
              help="Print only this shard.  [default: all, by time]")
@click.option("--filter", "filter_", metavar="FILTER", help="Print only records whose topic this filter matches.")
@click.option("--limit", metavar="N", type=click.IntRange(1), help="Stop after this number of records.")
@click.option("--follow", is_flag=True, help="Also print new records, until Ctrl-C.")
def dump(
    directory: str,
    begin: str | None,
    end: str | None,
    shard: int | None,
    filter_: str | None,
    limit: int | None,
    follow: bool,
) -> int:
    """Print the records of the stream in DIR, a line of JSON for each. A TIME is as in ISO 8601, such as
    2026-11-22T10:00:00Z; without an offset it is local time. Missing records are reported on stderr."""

    def run() -> int:
        from mosq.journal.dump import Choice, Dump, place_of
        from mosq.journal.folders import one_stream
        from mosq.journal.stream import Stream

        try:
            choice = Choice(
                place_of(begin) if begin is not None else None,
                place_of(end) if end is not None else None,
                shard,
                filter_,
                limit,
            )
        except ValueError as error:
            raise click.UsageError(f"{error}.") from None
        stream = Stream(one_stream(directory))
        try:
            dumping = Dump(
                stream, choice, lambda line: sys.stdout.write(line + "\n"), lambda text: click.echo(text, err=True)
            )
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--shard") from None
        if not follow:
            dumping.once()
        else:
            import time

            from mosq.journal.dump import POLL_S

            def wait() -> None:
                sys.stdout.flush()
                time.sleep(POLL_S)

            try:
                dumping.follow(wait)
            except KeyboardInterrupt:
                pass
        sys.stdout.flush()
        return EXIT_OK

    return guarded(run)
