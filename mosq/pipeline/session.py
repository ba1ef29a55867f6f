"""Start a Spark session with the settings that the pipeline needs, and register `format("mosq")` in it.

Missing requirements of this machine are reported before Spark is started, because Spark's own messages are misleading.
"""

import atexit
import contextlib
import os
import re
import shutil
import sys
import tempfile
import warnings
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from mosq.pipeline import MosqPipelineError, java, trouble
from mosq.pipeline.cluster import package
from mosq.pipeline.settings import TIME_ZONE
from mosq.tools.extras import install_advice, packages_advice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

JAVA_AT_LEAST = 17
# package: versions (at least, below); Delta's jars for Spark exist for 4.2.0 only, and Spark fails late with pandas 3
PACKAGES = {
    "pyspark": ((4, 2), (4, 2, 1)),
    "deltalake": ((1, 6), (2,)),
    "pandas": ((2, 2), (3,)),
    "pyarrow": ((18,), None),
    "protobuf": ((5,), None),
}
LOCAL_DIRS = "SPARK_LOCAL_DIRS"  # the places of Spark's own files on this machine, before spark.local.dir
INSTALL = install_advice("pipeline")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def package_versions() -> dict[str, str | None]:
    """Return the installed version of each package, or None."""
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def _wanted(name: str) -> str:
    """Return the versions of a package in the form of pip."""
    least, below = PACKAGES[name]
    if below == (*least, 1):
        return f"{name}=={_dotted(least)}.0"
    return f"{name}>={_dotted(least)}" + (f",<{_dotted(below)}" if below else "")


def package_problems() -> dict[str, str]:
    """Return for each unsuitable package the problem and its fix."""
    problems = {}
    for name, installed in package_versions().items():
        least, below = PACKAGES[name]
        wanted = _wanted(name)
        if installed is None:
            problems[name] = f"{name} is not installed: {INSTALL}"
            continue
        version = tuple(int(part) for part in re.findall(r"\d+", installed)[:3])
        if version < least or (below and version >= below):
            problems[name] = f"{name} {installed} does not work with the pipeline: {packages_advice([wanted])}"
    return problems


def java_problem() -> str | None:
    """Return what is wrong with Java on this machine and how to fix it, or None."""
    program = java.find()
    if program is None:
        return "there is no Java: apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
    version = java.version(program)
    if version is None:
        return f"{program} does not run: set JAVA_HOME to a Java of version {JAVA_AT_LEAST} or later"
    if version < JAVA_AT_LEAST:
        return f"{program} is Java {version}, Spark needs {JAVA_AT_LEAST}: set JAVA_HOME to a later version"
    return None


def problems() -> list[str]:
    """Return why a session cannot be started here, each reason with its fix."""
    found = list(package_problems().values())
    why = java_problem()
    return found if why is None else [*found, why]


def _conf(master: str, given: "Mapping[str, str]") -> dict[str, str]:
    here = Path(__file__).parent
    conf = {
        # workers import the same mosq as this process, wherever they are started
        **package.options(master, given),
        "spark.pyspark.python": given.get("spark.pyspark.python", sys.executable),
        "spark.pyspark.driver.python": sys.executable,
        # quiet from the first line on; `setLogLevel` takes effect too late
        "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={(here / 'log4j2.properties').as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        TIME_ZONE: "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # the default, INT96, is interpreted differently by readers other than Spark
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    if master.startswith("local"):
        conf |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "4",
        }
    return conf


def spark_session(
    app: str,
    *,
    master: str | None = None,
    conf: "Mapping[str, str] | None" = None,
    pass_fds: "Sequence[int]" = (),
) -> "SparkSession":
    """Return a new session, or the session of this process.

    `master` is "local[*]" by default; under spark-submit its own setting is the default. `conf` overrides the settings
    of this module. The JVM inherits the descriptors `pass_fds`: it holds a lock until it has ended, too.
    """
    if found := problems():
        raise MosqPipelineError("Spark cannot be started:\n" + "\n".join(f"- {problem}" for problem in found))
    given = dict(conf or {})
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = given.get("spark.pyspark.python", sys.executable)
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    trouble.quiet()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    ours = _conf(master or ("" if submitted else "local"), given)
    # our archives contain the caller's
    options = ours | given | ({package.ARCHIVES: ours[package.ARCHIVES]} if package.ARCHIVES in ours else {})
    builder = SparkSession.builder.appName(app)
    if master is not None or not submitted:
        options["spark.master"] = master or "local[*]"
    for key, value in options.items():
        builder = builder.config(key, value)
    if not submitted and SparkContext._gateway is None:
        # not in the settings, because the executors of a cluster have their own places
        os.environ[LOCAL_DIRS] = private_folders(options)
    if pass_fds and not submitted:
        _start_jvm(options, pass_fds)
    with _one_line():
        spark = builder.getOrCreate()
    register(spark)
    return spark


def private_folders(given: "Mapping[str, str]") -> str:
    """Make a folder for Spark's own files, which only this user can read, in each of its places; return their names.

    They have rows that Spark moves or spills, and Spark makes some of them readable to all users. They are deleted when
    this process ends.
    """
    places = os.environ.get(LOCAL_DIRS) or given.get("spark.local.dir") or tempfile.gettempdir()
    found = []
    for place in places.split(","):
        Path(place).mkdir(parents=True, exist_ok=True)
        found.append(tempfile.mkdtemp(prefix="mosq-spark-", dir=place))  # mode 0700 with any umask
        atexit.register(shutil.rmtree, found[-1], ignore_errors=True)
    return ",".join(found)


def _start_jvm(options: "Mapping[str, str]", pass_fds: "Sequence[int]") -> None:
    """Start the JVM of this process with inherited descriptors.

    A JVM that runs already was started without them. It ends with this process, when its standard input closes.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    settings = SparkConf(loadDefaults=False)
    for key, value in options.items():
        settings.set(key, value)
    with _one_line():
        gateway = launch_gateway(settings, {"pass_fds": tuple(pass_fds)})
    SparkContext._ensure_initialized(gateway=gateway, conf=settings)


@contextlib.contextmanager
def _one_line() -> "Iterator[None]":
    """Raise MosqPipelineError if Spark's JVM does not start."""
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, OSError) as error:
        why = "its JVM ended at once" if "GATEWAY_EXITED" in str(error) else str(error).partition("\n")[0]
        raise MosqPipelineError(
            f"Spark did not start: {why}. Its own message stands above; check the settings [spark], the memory and the"
            " disk (`mosq pipeline doctor`)"
        ) from error


def register(spark: "SparkSession") -> None:
    """Register the formats in a session that the caller has made."""
    from mosq.pipeline.mqtt import MqttSource
    from mosq.pipeline.source import JournalSource

    spark.dataSource.register(JournalSource)
    spark.dataSource.register(MqttSource)


def stop(spark: "SparkSession") -> None:
    """Stop a session; its JVM may be dead already."""
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark.stop()
