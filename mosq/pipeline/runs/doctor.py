"""`mosq pipeline doctor`: what the pipeline needs here, whether it is there, and how to mend it. Imports nothing that
may be missing, starts no Spark, changes nothing."""

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
    ok: bool
    what: str
    found: str
    mend: str = ""


def examine(file: Path | str) -> list[Finding]:
    return [*_packages(), _java(), _worker(), _memory(), *_settings(file)]


def _packages() -> "Iterator[Finding]":
    problems = session.package_problems()
    for name, said in session.package_versions().items():
        if (why := problems.get(name)) is None:
            yield Finding(True, name, said or "")
        else:
            yield Finding(False, name, said or "not installed", why.partition(": ")[2])


def _java() -> Finding:
    home = os.environ.get("JAVA_HOME")
    where = f"JAVA_HOME={home}" if home else "JAVA_HOME is not set, the one on the path counts"
    why = session.java_problem()
    if why is not None:
        return Finding(False, "Java", f"{why.partition(': ')[0]} ({where})", why.partition(": ")[2])
    return Finding(True, "Java", f"{session.java()} ({where})")


def _worker() -> Finding:
    """What Spark's Python workers are: `run` sets it; a cluster with another one needs the same packages."""
    said = os.environ.get("PYSPARK_PYTHON")
    if said and Path(said).resolve() != Path(sys.executable).resolve() and shutil.which(said) is None:
        return Finding(
            False, "PYSPARK_PYTHON", f"{said} is not there", f"unset it, or export PYSPARK_PYTHON={sys.executable}"
        )
    return Finding(True, "PYSPARK_PYTHON", said or f"not set: {sys.executable}")


def _memory() -> Finding:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return Finding(True, "memory", "not known")
    said = f"{free / (1 << 30):.1f} GiB available"
    return Finding(
        free >= MEMORY_BYTES,
        "memory",
        said,
        "Spark's JVM and its workers take 1 to 2 GiB: free some, or take another machine",
    )


def _settings(file: Path | str) -> "Iterator[Finding]":
    try:
        found = settings.load(file)
    except MosqPipelineError as error:
        yield Finding(
            False, "settings", str(error), "correct that, or `mosq pipeline init DIR` for a file to begin with"
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
    said = ", ".join(
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
                f"{said}; {found.journal / closed[0] / 'consumers'} cannot be written",
                'let this user write there (it holds the mark that retention respects), or set consumer = "" in'
                f" {found.file}",
            )
    return Finding(True, "journal", f"{found.journal}: {said}")


def _writable(folder: Path) -> bool:
    """A folder that is there, or could be made."""
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
    said = f"{folder}: {free / (1 << 30):.1f} GiB free"
    return Finding(free >= DISK_BYTES, what, said, "free some space, or name a folder on another disk in the settings")
