"""Define `mosq pipeline jars`: the jars for Spark's `format("delta")`."""

from __future__ import annotations

from pathlib import Path

import click

from mosq.cli.pipeline.options import EXIT_FAILED, EXIT_OK, HELP, guarded
from mosq.tools.bench.html.steps import Steps

EPILOG = """\b
Examples:
  mosq pipeline jars                                gets the missing jars, then needs no network
  mosq pipeline jars --check                        lists the jars that the cache has, and those that are missing
  spark-sql $(mosq pipeline jars --options) -e "SELECT count(*) FROM delta.`/srv/tables/bronze`"
"""


@click.command("jars", context_settings=HELP, epilog=EPILOG)
@click.option("--dir", "where", metavar="DIR", type=click.Path(), help="Folder of the jars.  [default: in ~/.cache]")
@click.option("--ivy-settings", metavar="FILE", type=click.Path(), help="Ivy's settings, for a repository of your own.")
@click.option("--check", is_flag=True, help="Load nothing: exit status 1 if a jar is missing.")
@click.option("--options", "as_options", is_flag=True, help="Print the options of spark-submit, in one line.")
@guarded
def jars(where: str | None, ivy_settings: str | None, check: bool, as_options: bool) -> int:
    """Get the jars with which your own Spark programs use format("delta"). mosq itself needs none."""
    from mosq.pipeline import jars as found

    folder = Path(where) if where else None
    if not check:
        steps = Steps(as_options)
        try:
            found.fetch(steps, folder, ivy_settings)
        finally:
            steps.end()
    missing = found.missing(folder)
    for one in missing:
        click.echo(f"missing: {one}", err=True)
    if missing:
        return EXIT_FAILED
    if as_options:
        paths = ",".join(str(path) for path in found.present(folder))
        click.echo(" ".join(["--jars", paths, *(f"--conf {key}={value}" for key, value in found.CONF.items())]))
    else:
        click.echo(f"{folder or found.folder()}: {len(found.NAMES)} jars, Delta {found.VERSION}")
    return EXIT_OK
