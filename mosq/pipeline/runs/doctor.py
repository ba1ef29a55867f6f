"""Check the needs of the pipeline on this machine (`mosq pipeline doctor`), and report how to fix each problem.

This module imports nothing that may be missing, and changes nothing. It starts Spark only for the checks of a cluster.
"""

import contextlib
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mosq.pipeline import MosqPipelineError, jars, java, session, settings, user

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


def examine(file: Path | str, master: str | None = None) -> list[Finding]:
    """Run all checks for the settings in a file; with a master also those from its executors, which start Spark."""
    found = [*_packages(), _java(), _worker(), _memory(), *_settings(file)]
    if master is not None and all(one.ok for one in found):
        found.append(_cluster(file, master))
    return found


def _cluster(file: Path | str, master: str) -> Finding:
    """Check packages, journal and tables from the executors of a cluster."""
    from mosq.pipeline import trouble
    from mosq.pipeline.cluster import probe

    given = settings.load(file)
    try:
        with trouble.plain_errors(given):
            spark = session.spark_session("mosq pipeline doctor", master=master, conf=given.spark)
            try:
                seen = probe.check(spark, given)
            finally:
                session.stop(spark)
    except MosqPipelineError as error:
        return Finding(False, "cluster", f"{master}: {error}", f"see {probe.PAGE}")
    hosts = ", ".join(f"{one['host']} (Python {one['python']}, pyarrow {one['pyarrow']})" for one in seen)
    return Finding(True, "cluster", f"{master}: {len(seen)} executor{'s' * (len(seen) > 1)} on {hosts}")


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
    return Finding(True, "Java", f"{java.find()} ({where})")


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
    if found.spark.get("spark.jars") is None and any("delta" in value for value in found.spark.values()):
        yield _jars()
    # missing packages are reported above
    with contextlib.suppress(ImportError):
        for source in found.sources:
            yield _journal(found, source)
    with contextlib.suppress(ImportError):
        yield _tables(found)
    yield _folder("checkpoints", found.checkpoints)
    yield _lock(found)


def _journal(found: "settings.Settings", source: "settings.Source") -> Finding:
    from mosq.pipeline.runs import progress

    what = "journal" if len(found.sources) == 1 else f"journal of {source.node}"
    try:
        streams = progress.streams_of(found, source)
        marks = {name: stream.marks() for name, stream in streams.items()}
    except (MosqPipelineError, OSError, ValueError) as error:
        return Finding(
            False,
            what,
            str(error),
            f"let {user()} read {source.journal}, or correct `journal` in {found.file}",
        )
    text = ", ".join(
        f"{name} ({len(shards)} shard{'s' * (len(shards) > 1)}, {sum(mark.seq - mark.first_seq for mark in shards):,}"
        " records)"
        for name, shards in marks.items()
    )
    if found.consumer:
        closed = [name for name in streams if not _writable(source.journal / name / "consumers")]
        if closed:
            return Finding(
                False,
                what,
                f"{text}; {source.journal / closed[0] / 'consumers'} cannot be written",
                f'let {user()} write there (it holds the mark that retention respects), or set consumer = "" in'
                f" {found.file}",
            )
    return Finding(True, what, f"{source.journal}: {text}")


def _writable(folder: Path) -> bool:
    """Return whether the folder exists and is writable, or could be created."""
    while not folder.exists():
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _jars() -> Finding:
    missing = jars.missing()
    if missing:
        return Finding(False, "Delta's jars", f"missing: {', '.join(missing)}", "run `mosq pipeline jars`")
    return Finding(True, "Delta's jars", f"{jars.folder()}: {jars.VERSION}")


def _tables(found: "settings.Settings") -> Finding:
    """Check that the tables can be read and written, and that they belong to the checkpoints."""
    from mosq.pipeline.lake.places import place_of
    from mosq.pipeline.runs import progress

    place = place_of(found)
    if place.is_local and not (one := _folder("tables", place.path)).ok:
        return one
    try:
        about = progress.get(found.checkpoints / progress.IDENTITY)
        if about is None:
            progress.check(found, {})  # without checkpoints it compares no settings
        elif about["made"]:
            progress.check_tables(found, about)
        text = f"{found.tables}: no table yet" if about is None or not about["made"] else _content(found)
    except MosqPipelineError as error:
        return Finding(False, "tables", str(error), "see docs/pipeline.md, Faults")
    except (OSError, ValueError, KeyError) as error:
        return Finding(False, "tables", f"{found.tables}: {error}", "restore tables and checkpoints of one time")
    return Finding(True, "tables", text)


def _content(found: "settings.Settings") -> str:
    from mosq.pipeline import frames

    tables = frames.snapshots(found)
    files = sum(table.adds().num_rows for table in tables.values())
    free = ""
    if (path := Path(found.tables)).exists():
        free = f", {shutil.disk_usage(path).free / (1 << 30):.1f} GiB free"
    return f"{found.tables}: {len(tables)} tables, {files:,} files{free}"


def _lock(found: "settings.Settings") -> Finding:
    """Name the processes that hold the lock of the tables: a run, or what a killed run left."""
    holders = lock_holders(found.checkpoints / "lock")
    if not holders:
        return Finding(True, "lock", "free: no run works on these tables")
    processes = ", ".join(f"{number} ({name})" for number, name in holders.items())
    if any("java" not in name for name in holders.values()):
        return Finding(True, "lock", f"a run works on these tables: process {processes}")
    return Finding(
        False,
        "lock",
        f"Spark's JVM of a run that was killed still lives: process {processes}",
        f"it ends by itself; if it does not (it is stopped, or hangs): kill -9 {' '.join(map(str, holders))}",
    )


def lock_holders(path: Path) -> dict[int, str]:
    """Return the processes that have the file of a lock open, with their names, as far as this user may see them."""
    found: dict[int, str] = {}
    try:
        wanted = path.stat()
    except OSError:
        return found
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for fd in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    one = fd.stat()
                    if (one.st_dev, one.st_ino) == (wanted.st_dev, wanted.st_ino):
                        found[int(process.name)] = (process / "comm").read_text().strip()
                        break
    return found


def _folder(what: str, folder: Path) -> Finding:
    if not _writable(folder):
        return Finding(
            False,
            what,
            f"{folder} cannot be written",
            f"let {user()} write there, or name another folder in the settings",
        )
    there = folder
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    text = f"{folder}: {free / (1 << 30):.1f} GiB free"
    return Finding(free >= DISK_BYTES, what, text, "free some space, or name a folder on another disk in the settings")
