"""Check the needs of the pipeline on this machine (`mosq pipeline doctor`), and report how to fix each problem.

This module imports nothing that may be missing, starts no Spark and changes nothing.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mosq.pipeline import MosqPipelineError, session, settings, state

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY_BYTES = 2 << 30
DISK_BYTES = 2 << 30


class Finding(NamedTuple):
    """Hold the result of one check: whether it is ok, the thing checked, the finding, and the fix."""

    ok: bool
    what: str
    found: str
    fix: str = ""


def examine(file: Path | str) -> list[Finding]:
    """Run all checks for the settings in a file."""
    return [*_packages(), _java(), _worker(), _memory(), *_settings(file)]


def _packages() -> "Iterator[Finding]":
    problems = session.package_problems()
    for name, version in session.package_versions().items():
        if (why := problems.get(name)) is None:
            yield Finding(True, name, version or "")
        else:
            yield Finding(False, name, version or "not installed", why.partition(": ")[2])


def _java() -> Finding:
    home = os.environ.get("JAVA_HOME")
    where = f"JAVA_HOME={home}" if home else "JAVA_HOME is not set, so the java on the path is used"
    why = session.java_problem()
    if why is not None:
        return Finding(False, "Java", f"{why.partition(': ')[0]} ({where})", why.partition(": ")[2])
    return Finding(True, "Java", f"{session.java()} ({where})")


def _worker() -> Finding:
    """Check the program of Spark's Python workers. `run` sets it; another one on a cluster needs the same packages."""
    program = os.environ.get("PYSPARK_PYTHON")
    if program and Path(program).resolve() != Path(sys.executable).resolve() and shutil.which(program) is None:
        return Finding(
            False, "PYSPARK_PYTHON", f"{program} is not there", f"unset it, or export PYSPARK_PYTHON={sys.executable}"
        )
    return Finding(True, "PYSPARK_PYTHON", program or f"not set: {sys.executable}")


def _memory() -> Finding:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return Finding(True, "memory", "not known")
    text = f"{free / (1 << 30):.1f} GiB available"
    return Finding(
        free >= MEMORY_BYTES,
        "memory",
        text,
        "Spark's JVM and its workers take 1 to 2 GiB: free some, or use another machine",
    )


def _settings(file: Path | str) -> "Iterator[Finding]":
    try:
        found = settings.load(file)
    except MosqPipelineError as error:
        yield Finding(
            False, "settings", str(error), "correct it, or run `mosq pipeline init DIR` to create a first file"
        )
        return
    yield Finding(True, "settings", str(found.file))
    if any(rule.format == "sparkplug" for rule in found.silver) and importlib.util.find_spec("google.protobuf") is None:
        yield Finding(False, "protobuf", "not installed, and [[silver]] has sparkplug", session.INSTALL)
    yield _journal(found)
    for what, folder in (("tables", found.tables), ("checkpoints", found.checkpoints)):
        yield _folder(what, folder)


def _journal(found: "settings.Settings") -> Finding:
    try:
        streams = state.streams(found)
        marks = {name: stream.marks() for name, stream in streams.items()}
    except (MosqPipelineError, OSError, ValueError) as error:
        return Finding(
            False,
            "journal",
            str(error),
            f"let this user read {found.journal}, or correct [pipeline] journal in {found.file}",
        )
    text = ", ".join(
        f"{name} ({len(shards)} shard{'s' * (len(shards) > 1)}, {sum(mark.seq - mark.first_seq for mark in shards):,}"
        " records)"
        for name, shards in marks.items()
    )
    if found.consumer:
        closed = [name for name in streams if not _writable(found.journal / name / "consumers")]
        if closed:
            return Finding(
                False,
                "journal",
                f"{text}; {found.journal / closed[0] / 'consumers'} cannot be written",
                'let this user write there (it holds the mark that retention respects), or set consumer = "" in'
                f" {found.file}",
            )
    return Finding(True, "journal", f"{found.journal}: {text}")


def _writable(folder: Path) -> bool:
    """Return whether the folder exists and is writable, or could be created."""
    while not folder.exists():
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _folder(what: str, folder: Path) -> Finding:
    if not _writable(folder):
        return Finding(
            False,
            what,
            f"{folder} cannot be written",
            "let this user write there, or name another folder in the settings",
        )
    there = folder
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    text = f"{folder}: {free / (1 << 30):.1f} GiB free"
    return Finding(free >= DISK_BYTES, what, text, "free some space, or name a folder on another disk in the settings")
