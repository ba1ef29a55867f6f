"""Write perf/RESULTS.md from the folders below perf/results: figures with machine, versions and commands.

    python -m perf.results DIR...       # keep the figures of these folders there, and write RESULTS.md again
    python -m perf.results              # only write it again
    python -m perf.results --check      # exit status 1 if RESULTS.md is out of date

A kept folder is small, and describes the machine only in about.json: no histograms, no time lines, six digits, paths
without their folders. `mosq bench report` can still read it. This needs only Python.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosq.tools.bench.html.command import contents
from mosq.tools.bench.html.figures import MARKS
from mosq.tools.bench.html.lab import Lab
from mosq.tools.bench.html.reading import read, runs_of
from mosq.tools.bench.spec import BenchError
from perf.cluster.report import section as of_cluster
from perf.tables import table
from perf.workers.report import section as of_workers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosq.tools.bench.html.parts import Cell, Section

HERE = Path(__file__).parent
OTHERS = {"workers": of_workers, "cluster": of_cluster}     # folders with the figures of perf.workers, perf.cluster
KEPT, FILE = HERE / "results", HERE / "RESULTS.md"
OPTIONS = frozenset({"scenario", "version", "qos", "size", "publishers", "subscribers", "clients", "messages", "rate",
                     "seconds", "name", "tls", "ws"})
DROPPED = frozenset({"timeline", "buckets_ns", "user_s", "system_s", "pss_before_bytes", "pss_after_bytes"})
NOTHING: tuple[Any, ...] = (None, 0, "", {"count": 0}, {}, [])
MEANINGFUL = frozenset({"format", "complete", "rep", "count", "qos"})       # also as 0 and false
PATH = re.compile(r"(?:file://|(?<![\w.:/]))/(?:[\w.+@-]+/)+([\w.+@-]*)")      # absolute; the last part stays
HEAD = """# Results

The command `python -m perf.results` generates this page from the runs in [perf/results](results).
[FINDINGS.md](FINDINGS.md) has the conclusions. Unless noted, a figure is the median of its repetitions, with the least
and the most of them in brackets. [docs/bench.md](../docs/bench.md) describes the measurements,
[docs/report.md](../docs/report.md) the sections.
"""


# ---------------------------------------------------------------- a folder, kept small

def compact(data: Any, name: str = "") -> Any:
    """Remove empty values: the report takes missing ones as empty."""
    if isinstance(data, dict):
        kept = {key: compact(value, key) for key, value in data.items()
                if key not in DROPPED and (name != "options" or key in OPTIONS)}
        return {key: value for key, value in kept.items()
                if key in MEANINGFUL or name == "messages" or value not in NOTHING}
    if isinstance(data, list):
        return [compact(value) for value in data]
    if isinstance(data, float):
        return float(f"{data:.6g}")
    return PATH.sub(r"\1", data) if isinstance(data, str) else data


def keep(source: Path, target: Path) -> None:
    """Keep about.json, runs.jsonl and locust.json of a folder; files of single results become lines of runs.jsonl."""
    if source.resolve() == target.resolve():
        return
    files = {file.name: json.loads(file.read_text(encoding="utf-8")) for file in sorted(source.glob("*.json"))}
    about, locust = files.pop("about.json", None), files.pop("locust.json", None)
    runs = source / "runs.jsonl"
    text = runs.read_text(encoding="utf-8") if runs.exists() else ""
    lines = [json.loads(line) for line in text.split("\n") if line.strip()]
    by_hand = sorted(files.values(), key=lambda data: str(data.get("started")))
    lines += [{**data, "run": run} for data, run in zip(by_hand, runs_of(by_hand), strict=True)]
    if about is None:
        about = {"format": 1, **{name: lines[0][name] for name in ("machine", "started") if lines and name in lines[0]}}
    target.mkdir(parents=True, exist_ok=True)
    for name, data in (("about.json", about), ("locust.json", locust)):
        if data is None:
            (target / name).unlink(missing_ok=True)         # a file that was kept under this name before
        else:
            text = json.dumps(compact(data), ensure_ascii=False, indent=1)
            (target / name).write_text(text + "\n", encoding="utf-8")
    with (target / runs.name).open("w", encoding="utf-8") as out:
        for data in lines:
            data.pop("machine", None)               # about.json has it
            out.write(json.dumps(compact(data), ensure_ascii=False, separators=(",", ":")) + "\n")


# ---------------------------------------------------------------- RESULTS.md

def results(kept: Path) -> str:
    """Return the text of RESULTS.md for the folders below `kept`."""
    folders = sorted(path for path in kept.iterdir() if path.is_dir() and path.name not in OTHERS)
    parts = [part for folder in folders for part in _folder(folder)]
    for name, section in OTHERS.items():
        if (kept / name).is_dir():
            parts += section(kept / name)
    return "\n".join([HEAD, *parts])


def _folder(path: Path) -> Iterator[str]:
    folder = read(str(path))
    lead, sections = contents(Lab(folder))
    yield f"## {_text(folder.about.title or path.name)}\n"
    yield "\n".join(f"- {_text(sentence)}" for sentence in lead) + "\n"
    letters = "; ".join(f"*{mark}* {text}" for mark, text in MARKS.items())
    yield f"With charts: `mosq bench report perf/results/{path.name}`. Letters beside a figure: {letters}.\n"
    for section in sections:
        if section.id != "missing" or folder.failed or folder.about.left_out:
            yield from _section(section)


def _section(section: Section) -> Iterator[str]:
    yield f"### {section.heading}\n\n{_text(section.sentence)}\n"
    points = [*(f"- {name}: {_text(text)}" for name, text in section.facts),
              *(f"- **Warning**: {_text(text)}" for text in section.warnings),
              *(f"- {_text(text)}" for text in section.notes)]
    if points:
        yield "\n".join(points) + "\n"
    for one in section.tables:
        if one.title:
            yield f"{_text(one.title)}:\n"
        yield table([_text(head.text) for head in one.heads], [[_cell(cell) for cell in row] for row in one.rows])
    for title, text in section.folds:
        code = text.replace("`", "").rstrip()
        yield f"<details><summary>{_text(title)}</summary>\n\n```\n{code}\n```\n\n</details>\n"


def _cell(cell: Cell) -> str:
    return (_text(cell.text) + (f" *{cell.marks}*" if cell.marks else "")
            + "".join(f" ({_text(text)})" for text in (cell.spread, cell.note) if text))


def _text(text: str) -> str:
    """Escape Markdown: names come from users."""
    return re.sub(r"([|<>`*_\[\]\\])", r"\\\1", text).replace("\n", " ")


def main(arguments: list[str] | None = None, kept: Path = KEPT, file: Path = FILE) -> int:
    parser = argparse.ArgumentParser(prog="python -m perf.results", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR", help="folder to keep, under its own name")
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if RESULTS.md is out of date")
    args = parser.parse_args(arguments)
    try:
        for folder in args.folders:
            wrong = read(str(folder)).problems
            if wrong:                       # unreadable parts cannot be kept
                raise BenchError("; ".join(wrong))
            keep(folder, kept / folder.resolve().name)
        text = results(kept)
    except (BenchError, OSError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    if args.check:
        return 0 if file.exists() and file.read_text(encoding="utf-8") == text else 1
    file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
