"""Check from the executors of a cluster that they can do the tasks: packages, the journal, the place of the tables.

An error names the machine and the repair. A run does this before its first batch, so that no task fails in its middle.
"""

import contextlib
import threading
import uuid
from typing import TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError
from mosq.pipeline.lake.places import Place, place_of
from mosq.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from mosq.pipeline.settings import Settings

PATIENCE_S = 120.0  # until an executor has started
LOOK_S = 0.1
STAY_S = 0.5  # a task stays so long, so that each executor gets one
PAGE = "docs/pipeline-cluster.md"
PACK = '`mosq pipeline package` makes an archive of them, which [spark] "spark.archives" names'
PREFIX = ".mosq-probe-"

Seen = dict[str, Any]


def executors(spark: "SparkSession") -> int:
    """Return how many executors a session has now. The driver counts as one too, elsewhere than here."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def is_cluster(master: str) -> bool:
    """Return whether a master runs tasks outside the driver."""
    return not master.startswith("local") or master.startswith("local-cluster")


def check(spark: "SparkSession", settings: "Settings", patience_s: float = PATIENCE_S) -> list[Seen]:
    """Return what was found on each executor. Raises MosqPipelineError for the first that lacks something."""
    _wait(spark, patience_s)
    place, name = place_of(settings), f"{PREFIX}{uuid.uuid4().hex}"
    with _marked(place, name):
        seen = _asked(spark, _wanted(settings, place, name), patience_s)
        written = {one["wrote"] for one in seen if one.get("wrote")}
        lost = sorted(one for one in written if not _there(place, one))
        for one in written:
            _remove(place, one)
    problems = [problem for one in seen if (problem := _problem(one, settings))]
    if not problems and lost:
        hosts = ", ".join(sorted({one["host"] for one in seen if one["wrote"] in lost}))
        problems = [_not_shared(hosts, settings)]
    if problems:
        more = len(set(problems)) - 1
        raise MosqPipelineError(problems[0] + (f" (and {more} further problems)" if more else ""))
    return seen


def _wait(spark: "SparkSession", patience_s: float) -> None:
    """Wait until an executor has started. Nothing else reports a cluster without free cores."""
    over = threading.Event()
    for _ in range(int(patience_s / LOOK_S)):
        if executors(spark) > 0:
            over.wait(STAY_S)  # the others come at the same time
            return
        over.wait(LOOK_S)
    conf = spark.sparkContext.getConf()
    memory, cores = conf.get("spark.executor.memory", "1g"), conf.get("spark.executor.cores", "1")
    raise MosqPipelineError(
        f"{conf.get('spark.master')}: no executor has started in {patience_s:.0f} s. Is a worker registered that has"
        f" {memory} of memory and {cores} core free, and can it connect to this machine ([spark]"
        f' "spark.driver.host", now {conf.get("spark.driver.host")})? See {PAGE}'
    )


def _wanted(settings: "Settings", place: Place, name: str) -> dict[str, Any]:
    from mosq.pipeline.settings import read_options
    from mosq.pipeline.source.options import Options
    from mosq.pipeline.source.streams import find

    streams = find(Options(read_options(settings.sources)))
    return {
        "streams": {one.key: (str(one.path), one.id) for one in streams.values()},
        "uri": place.uri,
        "options": place.options,
        "marker": name,
        "version": VERSION,
        "stay_s": STAY_S,
        "sparkplug": any(rule.format == "sparkplug" for rule in settings.silver),
    }


def _asked(spark: "SparkSession", wanted: dict[str, Any], patience_s: float) -> list[Seen]:
    """Return what a task on each core of the cluster found, once for each executor."""
    context = spark.sparkContext
    tasks = max(2, context.defaultParallelism)
    timer = threading.Timer(patience_s * 3, context.cancelAllJobs)
    timer.start()
    try:
        found = context.parallelize(range(tasks), tasks).mapPartitions(looking(wanted)).collect()
    finally:
        timer.cancel()
    return list({(one["host"], one["folder"]): one for one in found}.values())


def looking(wanted: "Mapping[str, Any]") -> "Callable[[Iterator[Any]], Iterator[Seen]]":
    """Return the work of a probing task. Its code is sent as a whole, because the executor may have no mosq."""

    def looked(_: "Iterator[Any]") -> "Iterator[Seen]":
        import importlib
        import os
        import socket
        import sys
        import time

        time.sleep(wanted["stay_s"])
        seen: Seen = {"host": socket.gethostname(), "folder": os.getcwd(), "python": sys.version.split()[0]}
        for name in ("pyarrow", "numpy", "deltalake", *(["google.protobuf"] if wanted["sparkplug"] else [])):
            try:
                if importlib.import_module(name).__file__ is None:
                    raise ImportError("its folder is empty")
            except ImportError as error:
                seen.setdefault("missing", f"{name} ({error})")
        try:
            from mosq.pipeline.cluster.probe import here
        except ImportError as error:
            seen.setdefault("missing", f"mosq ({error})")
        if "missing" not in seen:
            seen.update(here(wanted))
        yield seen

    return looked


def here(wanted: "Mapping[str, Any]") -> Seen:
    """Return what this process, a task of an executor, sees of journal and tables."""
    import importlib.metadata
    from pathlib import Path

    from mosq.journal.parts import marks_of

    seen: Seen = {"version": VERSION, "pyarrow": importlib.metadata.version("pyarrow"), "journal": "", "tables": ""}
    for name, (path, wanted_id) in wanted["streams"].items():
        try:
            found = marks_of(Path(path))["stream_id"]
        except OSError as error:
            seen["journal"] = f"the stream {name} cannot be read in {path} ({error.strerror})"
            break
        if found != wanted_id:
            seen["journal"] = f"{path} has another stream of the name {name}"
            break
    place = Place(wanted["uri"], wanted["options"])
    try:
        if not _there(place, wanted["marker"]):
            seen["tables"] = "it does not show a file that the driver has written there"
        else:
            seen["wrote"] = f"{wanted['marker']}-{uuid.uuid4().hex}"
            _write(place, seen["wrote"])
    except Exception as error:  # any fault of any storage
        seen["tables"] = " ".join(str(error).split())[:300]
    return seen


def _problem(seen: Seen, settings: "Settings") -> str | None:
    where = f"the executor on {seen['host']}"
    if missing := seen.get("missing"):
        return f"{where} has no package {missing}: install it there for {seen['python']}, or send it: {PACK} ({PAGE})"
    if seen["version"] != VERSION:
        return f"{where} has mosq {seen['version']}, the driver has {VERSION}: make the archive again ({PAGE})"
    if seen["journal"]:
        journals = ", ".join(str(source.journal) for source in settings.sources)
        return (
            f"{where}: {seen['journal']}: mount the journal, {journals}, at the same path on every machine of"
            f" the cluster, readable for the user of the executors ({PAGE})"
        )
    if seen["tables"]:
        return f"{where}: the place of the tables, {settings.tables}: {seen['tables']}. {_advice(settings)}"
    return None


def _not_shared(hosts: str, settings: "Settings") -> str:
    return (
        f"the driver does not see a file that the executor on {hosts} has written to {settings.tables}: each has a"
        f" folder of its own there. {_advice(settings)}"
    )


def _advice(settings: "Settings") -> str:
    if place_of(settings).is_local:
        return (
            "Mount one shared folder at this path on the driver and on every machine of the cluster, writable for the"
            f" user of the executors, or use object storage ({PAGE})"
        )
    return f"Let the executors reach it: network, [storage] and rights ({PAGE})"


# ---- files of the place


@contextlib.contextmanager
def _marked(place: Place, name: str) -> "Iterator[None]":
    """Let the place of the tables have a file during the block; a folder that this makes goes afterwards."""
    made = place.is_local and not place.path.exists()
    if place.is_local:
        place.path.mkdir(parents=True, exist_ok=True)
    _write(place, name)
    try:
        yield
    finally:
        _remove(place, name)
        if made:
            with contextlib.suppress(OSError):
                place.path.rmdir()


def _path(place: Place, name: str) -> tuple[Any, str]:
    files, base = place.filesystem()
    return files, f"{base}/{name}" if base else name


def _write(place: Place, name: str) -> None:
    files, path = _path(place, name)
    with files.open_output_stream(path) as out:
        out.write(b"mosq")


def _there(place: Place, name: str) -> bool:
    from pyarrow import fs

    files, path = _path(place, name)
    return bool(files.get_file_info(path).type == fs.FileType.File)


def _remove(place: Place, name: str) -> None:
    files, path = _path(place, name)
    with contextlib.suppress(OSError):
        files.delete_file(path)
