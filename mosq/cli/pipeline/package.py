"""Define `mosq pipeline package`: the archive for the executors of a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from mosq.cli.pipeline.options import EXIT_OK, HELP, guarded
from mosq.tools.bench.html.steps import Steps

FILE = "mosq-packages.zip"
EPILOG = """\b
Examples:
  mosq pipeline package                             mosq and its packages, in mosq-packages.zip
  mosq pipeline package --bare mosq.zip             mosq alone: the executors have the packages
  spark-submit --archives mosq-packages.zip#mosq-packages ... job.py

\b
`mosq pipeline run --master URL` sends mosq alone by itself. This archive is for executors without
pyarrow, numpy, pandas, deltalake and protobuf (docs/pipeline-cluster.md). They need the same
version of Python, and the same kind of processor and system as this machine.
"""


@click.command("package", context_settings=HELP, epilog=EPILOG)
@click.argument("file", default=FILE, type=click.Path(dir_okay=False))
@click.option("--bare", is_flag=True, help="Pack mosq alone, without the packages that it needs.")
@guarded
def package(file: str, bare: bool) -> int:
    """Pack what executors of a cluster need into FILE, and print the line for pipeline.toml."""
    from mosq.pipeline.cluster import package as made

    steps = Steps(False)
    try:
        steps(f"writing {file}")
        size = made.make(Path(file), not bare)
    finally:
        steps.end()
    click.echo(f"{file}: {size / (1 << 20):,.0f} MiB: {made.summary(not bare)}")
    click.echo(f'[spark]\n"{made.ARCHIVES}" = "{made.archive_option(Path(file))}"')
    return EXIT_OK
