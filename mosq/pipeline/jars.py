"""Get the jars with which Spark's own `format("delta")` reads and writes the tables: Maven coordinates, into a cache.

The programs of mosq need none of them. Ivy, a part of Spark, loads each jar once and checks its checksum. What the
local repository of Maven or the cache holds needs no network.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mosq.pipeline import MosqPipelineError, java, session

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP, VERSION = "io.delta", "4.4.0"
# Delta's own jars: all else that they need is in Spark
NAMES = (
    "delta-spark_4.2_2.13",
    "delta-storage",
    "delta-kernel-api",
    "delta-kernel-defaults",
    "delta-kernel-unitycatalog",
)
CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # a snapshot of a small table needs no 50 tasks
    "spark.databricks.delta.snapshotPartitions": "2",
}
PATIENCE_S = 600


def coordinates() -> list[str]:
    """Return the Maven coordinates."""
    return [f"{GROUP}:{name}:{VERSION}" for name in NAMES]


def folder() -> Path:
    """Return the folder of the cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "mosq", "jars", f"delta-{VERSION}")


def _file(name: str) -> str:
    return f"{name}-{VERSION}.jar"


def present(where: Path | None = None) -> list[Path]:
    """Return the jars that the cache holds."""
    return [path for name in NAMES if (path := (where or folder()) / _file(name)).is_file()]


def missing(where: Path | None = None) -> list[str]:
    """Return the coordinates of the jars that the cache does not hold."""
    there = {path.name for path in present(where)}
    return [f"{GROUP}:{name}:{VERSION}" for name in NAMES if _file(name) not in there]


def conf(where: Path | None = None) -> dict[str, str]:
    """Return settings of Spark for a session with Delta."""
    return {"spark.jars": ",".join(map(str, present(where))), **CONF}


def fetch(log: "Callable[[str], object]", where: Path | None = None, ivy_settings: str | None = None) -> list[Path]:
    """Get the missing jars, with a line for each, and return all. Raises MosqPipelineError if one cannot be had."""
    target = where or folder()
    try:
        target.mkdir(parents=True, exist_ok=True)
        for at, name in enumerate(NAMES, 1):
            if (target / _file(name)).is_file():
                continue
            log(f"{at} of {len(NAMES)}: {GROUP}:{name}:{VERSION}")
            with tempfile.TemporaryDirectory(dir=target, prefix=".new-") as new:
                found = _of_maven(name) or _by_ivy(name, Path(new), ivy_settings)
                ready = Path(new, f"{_file(name)}.ready")
                shutil.copyfile(found, ready)
                ready.replace(target / _file(name))
    except OSError as error:
        raise MosqPipelineError(f"{error.filename or target}: {error.strerror or error}") from None
    return present(target)


def _of_maven(name: str) -> Path | None:
    """Return the jar in the local repository of Maven, if it is there."""
    path = Path.home() / ".m2" / "repository" / GROUP.replace(".", "/") / name / VERSION / _file(name)
    return path if path.is_file() else None


def _by_ivy(name: str, where: Path, ivy_settings: str | None) -> Path:
    import pyspark

    if (why := session.java_problem()) is not None:
        raise MosqPipelineError(why)
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"), None)
    if ivy is None:
        raise MosqPipelineError(f"{Path(pyspark.__file__).parent}: there is no jar of Ivy: {session.INSTALL}")
    # the configuration "master" is the jar alone: sources and documentation would be retrieved to the same file
    command: list[str | Path] = [java.find() or "java", "-jar", ivy, "-cache", where / "cache", "-notransitive"]
    command += ["-confs", "master"]
    command += ["-settings", ivy_settings] if ivy_settings else []
    command += ["-dependency", GROUP, name, VERSION, "-retrieve", str(where / "[artifact]-[revision].[ext]")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        raise MosqPipelineError(_advice(name, f"no answer in {PATIENCE_S} s")) from None
    found = where / _file(name)
    if done.returncode or not found.is_file():
        raise MosqPipelineError(_advice(name, _reason(done.stdout + done.stderr)))
    return found


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines()]
    reasons = [line for line in lines if any(word in line for word in ("not found", "error", "refused", "Exception"))]
    return (reasons or lines or ["no reason was given"])[0][:200]


def _advice(name: str, why: str) -> str:
    return (
        f"{GROUP}:{name}:{VERSION} cannot be had ({why}): connect this machine to a Maven repository, name your"
        f" own with --ivy-settings, or copy the jars of another machine into {folder()}"
    )
