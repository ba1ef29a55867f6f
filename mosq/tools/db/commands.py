"""Define `mosq db`. Reading works while a broker runs; importing and preferring need the broker stopped."""

import sys
import time
from typing import TYPE_CHECKING

import click

from mosq.tools.terminal import progress_bar, silence_broken_pipe

if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.tools.db.several import Stores

EXIT_OK, EXIT_FAILED = 0, 1
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

EPILOG = """\b
Examples:
  mosq db stats /var/lib/mosquitto                          count the content
  mosq db check /var/lib/mosquitto                          look for damage
  mosq db dump --client meter-7 --payload /var/lib/mosquitto
  mosq db export --sqlite mosq.sqlite /var/lib/mosquitto
  mosq db export --mosquitto mosquitto.db /var/lib/mosquitto   a file for Mosquitto itself
  mosq db import /var/lib/mosquitto/mosquitto.db            take over Mosquitto's data
  mosq db import -c mosquitto.conf mosquitto.db             also the queues of its bridges

\b
Exit status:
  0  done; for `check`: no problem
  1  not done; for `check`: problems found
  3  an error in the command line
"""


def open_stores(directory: str) -> "Stores":
    from mosq.tools.db.several import stores_in

    return stores_in(directory)


def guarded(command: "Callable[[], int]") -> int:
    """Run a command; print errors of stores and files in one line, and return the exit status."""
    from mosq.config.errors import ConfigError
    from mosq.tools.db.mosquitto_file import FormatError
    from mosq.tools.db.store import StoreError

    try:
        return command()
    except (StoreError, FormatError) as error:
        click.echo(f"Error: {error}", err=True)
    except ConfigError as error:
        click.echo(str(error), err=True)
    except BrokenPipeError:  # `mosq db dump ... | head`
        silence_broken_pipe()
        return EXIT_OK
    except OSError as error:
        click.echo(f"Error: {error.filename or '?'}: {error.strerror or error}", err=True)
    return EXIT_FAILED


@click.group(epilog=EPILOG, context_settings=HELP)
def db() -> None:
    """Show the store of durable sessions, or fill it from Mosquitto's."""


directory_argument = click.argument("directory", metavar="DIR", type=click.Path())
quiet_option = click.option("--quiet", is_flag=True, help="Show no progress bar.")


@db.command(context_settings=HELP)
@directory_argument
@click.option("--live", is_flag=True, help="A broker is writing: a torn end is no error.")
@quiet_option
def check(directory: str, live: bool, quiet: bool) -> int:
    """Read the whole store in DIR, or those of all workers, and report damaged, lost and contradictory records."""

    def run() -> int:
        from mosq.tools.db.read import state_of
        from mosq.tools.db.report import problems
        from mosq.tools.db.several import misplaced

        stores = open_stores(directory)
        found, states, records = list(stores.problems), {}, 0
        with progress_bar("checking", stores.total_bytes(), quiet) as bar:
            for worker, source in stores.parts:
                states[worker], loss, unreadable = state_of(source, bar.update)
                records += loss["records"]
                found += [f"worker {worker}: {line}" if worker else line
                          for line in problems(states[worker], loss, unreadable, live)]
        found += misplaced(stores, states)
        for line in found:
            click.echo(line)
        verdict = "not all is well" if found else "all is well"
        of = f" in the stores of {len(states)} workers" if stores.is_several else ""
        sessions = sum(len(state.sessions) for state in states.values())
        click.echo(f"{directory}: {records:,} records, {sessions:,} sessions{of}: {verdict}.")
        return EXIT_FAILED if found else EXIT_OK

    return guarded(run)


@db.command(context_settings=HELP)
@directory_argument
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@click.option("--kinds", "by_kind", is_flag=True, help="Also count the records of each kind in the log.")
@quiet_option
def stats(directory: str, as_json: bool, by_kind: bool, quiet: bool) -> int:
    """Count the content of the store in DIR: sessions, queued and retained messages, bytes."""

    def run() -> int:
        import json

        from mosq.tools.db.read import state_of
        from mosq.tools.db.report import figures, kinds_text, stats_text
        from mosq.tools.db.several import summed, summed_text

        stores = open_stores(directory)
        each, states = {}, {}
        with progress_bar("counting", stores.total_bytes(), quiet) as bar:
            for worker, source in stores.parts:
                states[worker], loss, _ = state_of(source, bar.update)
                each[worker] = figures(source, states[worker], loss, time.time())
        counted = summed(stores.root, each) if stores.is_several else each[0]
        show = summed_text if stores.is_several else stats_text
        click.echo(json.dumps(counted) if as_json else show(counted))
        for worker, state in states.items() if by_kind and not as_json else ():
            if worker:
                click.echo(f"worker {worker}")
            click.echo(kinds_text(state))
        return EXIT_OK

    return guarded(run)


@db.command(context_settings=HELP)
@directory_argument
@click.option(
    "--kind", "only", metavar="KIND", multiple=True, help="Only records of this kind, such as msg; repeatable."
)
@click.option("--client", metavar="ID", help="Only records of this client's sessions.")
@click.option("--topic", metavar="FILTER", help="Only messages whose topic this filter matches.")
@click.option("--from", "from_lsn", metavar="LSN", type=click.IntRange(0), default=0, help="Begin at this position.")
@click.option("--limit", metavar="N", type=click.IntRange(1), help="Stop after N records.")
@click.option("--payload", is_flag=True, help="Show payloads too.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each record.")
def dump(                               # parameters: one for each option of the command
    directory: str,
    only: tuple[str, ...],
    client: str | None,
    topic: str | None,
    from_lsn: int,
    limit: int | None,
    payload: bool,
    as_json: bool,
) -> int:
    """Print the records of the store in DIR, in the order in which they were written."""

    def run() -> int:
        from mosq.tools.db import kinds
        from mosq.tools.db.dump import Choice, dump_to

        unknown = [name for name in only if name not in kinds.BY_NAME]
        if unknown:
            raise click.BadParameter(f"`{unknown[0]}`; expected one of {', '.join(kinds.BY_NAME)}", param_hint="--kind")
        choice = Choice(frozenset(kinds.BY_NAME[name] for name in only), client, topic, from_lsn, limit)
        out = sys.stdout

        stores = open_stores(directory)
        if stores.is_several and from_lsn:
            stores.one()                # positions are those of one store
        left = limit
        for worker, source in stores.parts:
            of = "" if not worker else f'{{"worker": {worker}, ' if as_json else f"worker {worker}  "

            def line(text: str, of: str = of, skip: int = int(bool(worker and as_json))) -> None:
                nonlocal left
                left = None if left is None else left - 1
                out.write(f"{of}{text[skip:]}\n")

            for text in dump_to(source, choice._replace(limit=left), line, payload, as_json):
                click.echo(of + text if not as_json else text, err=True)
            if left == 0:
                break
        out.flush()
        return EXIT_OK

    return guarded(run)


@db.command(context_settings=HELP)
@directory_argument
@click.option("--sqlite", metavar="FILE", type=click.Path(), help="Write an SQLite database.")
@click.option("--jsonl", metavar="FILE", type=click.Path(), help="Write a line of JSON for each object; - for stdout.")
@click.option("--mosquitto", metavar="FILE", type=click.Path(), help="Write a file for Mosquitto 2.0 and 2.1.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@quiet_option
def export(                             # parameters: one for each option of the command
    directory: str, sqlite: str | None, jsonl: str | None, mosquitto: str | None, force: bool, quiet: bool
) -> int:
    """Write the current content of the store in DIR (not its history) into a file that other programs read."""
    if sum(one is not None for one in (sqlite, jsonl, mosquitto)) != 1:
        raise click.UsageError("Expected one of --sqlite FILE, --jsonl FILE and --mosquitto FILE.")

    def run() -> int:
        from mosq.tools.db.export import Lines, export_file
        from mosq.tools.db.export import export as export_to
        from mosq.tools.db.several import joined

        stores = open_stores(directory)
        if mosquitto is not None:
            with progress_bar("exporting", 2 * stores.total_bytes(), quiet) as bar:
                return _export_mosquitto(stores, mosquitto, force, bar.update)
        with joined(stores) as source, progress_bar("exporting", 2 * source.total_bytes(), quiet) as bar:
            if jsonl == "-":
                written, missing = export_to(source, Lines(sys.stdout), bar.update)
            else:
                path, kind = (sqlite, "sqlite") if sqlite is not None else (str(jsonl), "jsonl")
                written, missing = export_file(source, path, kind, force, bar.update)
        click.echo(f"{written:,} messages.", err=True)
        if missing:
            click.echo(
                f"Warning: {missing:,} messages were acknowledged or moved during the export; stop the broker for a "
                "complete one.",
                err=True,
            )
        return EXIT_OK

    return guarded(run)


def _export_mosquitto(stores: "Stores", path: str, force: bool, progress: "Callable[[int], None]") -> int:
    import os

    from mosq.tools.db.mosquitto_save import put_in_place, write_file
    from mosq.tools.db.store import StoreError

    if os.path.exists(path) and not force:
        raise StoreError(f"{path}: exists already; expected a new file, or --force")
    sources = {max(0, number - 1): source for number, source in stores.parts}
    written = write_file(sources, path, {}, progress, stores.spread())
    put_in_place(path)
    click.echo(f"{written.text()} exported.", err=True)
    if written.missing:
        click.echo(f"Warning: {written.missing:,} messages were acknowledged during the export; stop the broker for a "
                   "complete one.", err=True)
    return EXIT_OK


def names_of(config: str | None) -> list[str]:
    """Return the client ids of the configured bridges. Raises ConfigError."""
    if config is None:
        return []
    import socket

    from mosq.config.parser import load_config

    return [bridge.local_id(socket.gethostname()) for bridge in load_config(config).bridges]


@db.command("import", context_settings=HELP)
@click.argument("file", metavar="MOSQUITTO.DB", type=click.Path())
@click.argument("directory", metavar="[DIR]", type=click.Path(), required=False)
@click.option("--force", is_flag=True, help="Replace an existing store; it is kept in DIR/replaced.*")
@click.option("--dry-run", is_flag=True, help="Read the file and count what would be imported; write nothing.")
@click.option("-c", "config", metavar="FILE", type=click.Path(), help="The broker's configuration, if it has bridges.")
@click.option("--bridge", "bridges", metavar="ID", multiple=True, help="Client id of a bridge; repeatable.")
@quiet_option
def import_(
    file: str,
    directory: str | None,
    force: bool,
    dry_run: bool,
    config: str | None,
    bridges: tuple[str, ...],
    quiet: bool,
) -> int:
    """Make a store in DIR from a persistence file of Mosquitto 1.6, 2.0 or 2.1, or from the database of its plugin
    persist-sqlite: sessions, subscriptions, queued and retained messages, and wills of a database. The default DIR is
    MOSQUITTO.DB.store, where a broker with the same persistence_location and persistence_file finds it. Stop Mosquitto
    first, so that the file is complete. If there are bridges, give the configuration: a file of 2.1 does not mark their
    sessions.
    """

    def run() -> int:
        import os

        from mosq.tools.db.mosquitto_import import Import, import_file, open_file
        from mosq.tools.db.store import STORE

        configured = names_of(config)
        ids = [bridge.encode("utf-8", "surrogateescape") for bridge in (*bridges, *configured)]
        kept = None
        with progress_bar("importing", 2 * os.stat(file).st_size, quiet) as bar:
            reached = 0

            def progress(done: int, _total: int) -> None:
                nonlocal reached
                bar.update(done - reached)
                reached = done

            if dry_run:
                with open_file(file) as source:
                    imported = Import(source, time.time(), progress, ids)
                    for _ in imported.records():
                        pass
                    counts, warnings = imported.counts, [*source.warnings, *imported.counts.refused]
            else:
                store = directory or f"{file}{STORE}"
                counts, kept, warnings = import_file(file, store, time.time(), ids, force, progress)
        for warning in warnings:
            click.echo(f"Warning: {warning}", err=True)
        if kept:
            click.echo(f"The old store is now in {kept}; remove it when you do not need it.", err=True)
        click.echo(counts.text("would be imported" if dry_run else "imported"))
        return EXIT_OK

    return guarded(run)


@db.command(context_settings=HELP)
@click.argument("what", metavar="store|plugin", type=click.Choice(["store", "plugin"]))
@click.argument("directory", metavar="DIR", type=click.Path())
def prefer(what: str, directory: str) -> int:
    """Decide which one counts at the next start of a broker that refuses to start with a persistence plugin: the store
    in DIR, or what the plugin has. The other one is set aside in a folder below DIR.
    """

    def run() -> int:
        from mosq.tools.db import copy_mark
        from mosq.tools.db.store import StoreError, segment_files

        if not segment_files(directory):
            raise StoreError(f"{directory}: no store; expected the folder that the broker's error names")
        copy_mark.prefer(directory, what)
        click.echo(f"The {what} counts at the next start of the broker.")
        return EXIT_OK

    return guarded(run)
