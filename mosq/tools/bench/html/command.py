"""Run `mosq bench report DIR`: write the files, report the result, and return the exit status."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mosq.tools.bench.html.steps import Steps
from mosq.tools.bench.spec import BenchError
from mosq.tools.extras import install_advice

if TYPE_CHECKING:
    from mosq.tools.bench.html.against import Change
    from mosq.tools.bench.html.lab import Lab
    from mosq.tools.bench.html.parts import Section

EXIT_OK, EXIT_FAILED, EXIT_PARTS, EXIT_REGRESSED = 0, 1, 2, 4
MISSING = f"the report needs {{}}, which is not installed: {install_advice('bench')}"
EPILOG = """\b
Examples:
  mosq bench report results                         writes results/report.html
  mosq bench report results --out page.html --csv tables
  mosq bench report new --against old               show changes beyond noise

\b
DIR is what `make paper`, `make bench` and `make load` write, or a folder with files of
`mosq bench --json`. docs/report.md explains the page and the comparison.

\b
Exit status:
  0  written
  1  nothing written: DIR has no results, the folders have nothing in common, or a package
     is not installed
  2  written, but parts of the results could not be read; they are named
  3  an error in the command line
  4  written, and with --against: a figure became worse, beyond noise
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["--help"], "max_content_width": 100},
               help="Make a page of results with tables and charts, in one file.")
@click.argument("folder", metavar="DIR")
@click.option("--out", metavar="FILE", help="File of the page.  [default: DIR/report.html]")
@click.option("--csv", "csv_folder", metavar="FOLDER", help="Also write the figures as CSV files into this folder.")
@click.option("--against", metavar="DIR", help="Compare with the results of another commit in this folder.")
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
def report(folder: str, out: str | None, csv_folder: str | None, against: str | None, quiet: bool) -> int:
    steps = Steps(quiet)
    try:
        return _report(folder, out or str(Path(folder, "report.html")), csv_folder, against, steps)
    except BenchError as error:
        click.echo(f"Error: {error}", err=True)
        return EXIT_FAILED
    finally:
        steps.end()


def _report(path: str, out: str, csv_folder: str | None, before_path: str | None, steps: Steps) -> int:
    try:
        from mosq.tools.bench.html.page import page
    except ImportError as error:
        raise BenchError(MISSING.format(error.name)) from None
    from mosq.tools.bench.html import against, csv_files
    from mosq.tools.bench.html.lab import Lab
    from mosq.tools.bench.html.reading import read

    steps(f"reading {path}")
    lab = Lab(read(path))
    before = changes = None
    if before_path is not None:
        steps(f"reading {before_path}")
        before = Lab(read(before_path))
        changes = against.compare(lab, before)
        if not changes:
            raise BenchError(f"{path} and {before_path} have no measurement in common: the same test, case and broker "
                             "must be complete in both")
    lead, shown = contents(lab, before, changes)
    html = page(lab.folder.about.title or f"Results in {Path(path).resolve().name}", lead, shown, steps)
    try:
        Path(out).write_text(html, encoding="utf-8")
    except OSError as error:
        raise BenchError(f"cannot write {out}: {error.strerror}") from None
    if csv_folder is not None:
        steps(f"writing {csv_folder}")
        csv_files.write(csv_folder, lab, changes)
    problems = lab.folder.problems + (before.folder.problems if before else [])
    steps.end()
    for problem in problems:
        click.echo(f"Warning: {problem}", err=True)
    steps.result(f"{out}: {lab.folder.runs:,} runs, {len(shown)} sections")
    if changes is not None:
        _print_changes(changes, steps)
        if against.regressed(changes):
            return EXIT_REGRESSED
    return EXIT_PARTS if problems else EXIT_OK


def contents(lab: Lab, before: Lab | None = None, changes: list[Change] | None = None) -> tuple[list[str],
list[Section]]:
    """Return the sentences at the top of the page, and its sections; the last section names the empty ones."""
    from mosq.tools.bench.html import against, comparing, sections

    compared = [] if before is None or changes is None else [against.section(lab, before, changes)]
    every = [sections.measured(lab), *compared, sections.throughput(lab), sections.cpu(lab), sections.latency(lab),
             sections.memory(lab), comparing.peers(lab), sections.paper(lab), sections.vendors(lab),
             comparing.ablation(lab), sections.generator(lab), sections.locust(lab)]
    shown = [section for section in every if section.filled]
    shown.append(sections.missing(lab, [section for section in every if not section.filled]))
    return [*sections.summary(lab), *comparing.summary(lab)], shown


def _print_changes(changes: list[Change], steps: Steps) -> None:
    from mosq.tools.bench.html import against
    from mosq.tools.table import shown, table

    rows = against.lines(changes)
    if len(rows) > 1:
        for line in table([tuple(shown(cell) for cell in row) for row in rows]):
            steps.result(line)
    unknown = sum(change.verdict == against.UNKNOWN for change in changes)
    if unknown == len(changes):
        steps.result("The changes are unknown: one of the folders has a single repetition of each measurement.")
    else:
        steps.result(f"{len(changes):,} figures compared, {len(rows) - 1:,} changed beyond noise"
                 + (f", {unknown:,} unknown (a single repetition)" if unknown else ""))
