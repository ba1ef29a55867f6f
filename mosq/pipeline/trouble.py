"""Explain errors of Spark, of the storage and of the operating system in one text with advice.

Spark passes on an exception of the JVM that contains a traceback of a worker that contains our own message, all as
text.
"""

import contextlib
import errno
import logging
import os
import re
import signal
import socketserver
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from mosq.pipeline import MosqPipelineError, user

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosq.pipeline.settings import Settings

# our own message, up to the line with which the traceback continues
OURS = re.compile(
    r"MosqPipelineError: (.+?)(?=\n\s*\n|\n\s*at |\nTraceback|\nDriver stacktrace|\n\S*Error|\Z)", re.DOTALL
)
FULL = re.compile(r"No space left on device|Disk quota exceeded|ENOSPC|os error 28", re.IGNORECASE)
MEMORY = re.compile(r"OutOfMemoryError|Java heap space|MemoryError|maxResultSize")
GONE = re.compile(
    r"Py4JNetworkError|Connection refused|Connection reset|Broken pipe|Answer from Java side is empty"
    r"|Error while sending or receiving|SparkContext was shut down|stopped SparkContext"
    r"|trying to connect to the Java server|An error occurred while calling [\w.]+\s*\Z"  # without a Java exception
)
WORKER = re.compile(
    r"Python worker exited unexpectedly|Python worker process .* (?:crashed|terminated)|EOFException.*PythonRunner"
    r"|terminated with exception:\s*SQLSTATE"      # an EOFException without a text: the worker of a source
)
EXECUTOR = re.compile(r"ExecutorLostFailure|Executor heartbeat timed out|Remote RPC client disassociated|worker lost")
# a mount that is gone or broken: NFS, FUSE, a pulled disk
MOUNT = re.compile(
    r"Stale file handle|Transport endpoint is not connected|Input/output error|Host is down", re.IGNORECASE
)
MOUNT_CODES = (errno.ESTALE, errno.ENOTCONN, errno.EIO, errno.EHOSTDOWN)
READ_ONLY = re.compile(r"Read-only file system|os error 30", re.IGNORECASE)
DENIED = re.compile(r"(?:[\w.$]*Exception: )?([^\s:()]*)[^\n]{0,40}\(?(?:Permission denied|os error 13)", re.IGNORECASE)
LOST = re.compile(r"(?:FileNotFoundException|FileNotFoundError|PATH_NOT_FOUND|FILE_NOT_EXIST)", re.IGNORECASE)
PATH = re.compile(r"(?:file:)?(/[^\s'\":,)\]]+)")
MASTER = re.compile(r"All masters are unresponsive|Could not parse Master URL|Invalid Spark URL|Master removed our app")
PYTHON = re.compile(r'Cannot run program \\?"([^"\\]+)')
VERSIONS = re.compile(r"PYTHON_VERSION_MISMATCH|different (?:minor )?version")
NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
AGAIN = "run again: it continues where it was, and no row is lost or doubled"
JVM_ENDS_S = 5.0  # a JVM that closes its connections ends within that


def explained(error: BaseException, settings: "Settings | None" = None) -> str | None:
    """Return a better text for an error, or None if there is none."""
    if isinstance(error, MosqPipelineError):
        return str(error)
    text = str(error)
    if (ours := OURS.search(text)) is not None:
        return ours[1].strip()
    if isinstance(error, ConnectionError) and not _of_a_dead_jvm(error):
        return f"a connection to another program failed ({text}): does it still run?"
    found = _of_storage(error, text, settings) or _of_spark(text, settings)
    return _of_the_jvm() if found is None and _of_a_dead_jvm(error) else found


def _of_a_dead_jvm(error: BaseException | None) -> bool:
    """Return whether the error, or one that it came from, is of Spark's connection to its JVM; it may have no text."""
    while error is not None:
        if type(error).__name__ == "Py4JNetworkError":
            return True
        if isinstance(error, EOFError | ConnectionError):
            modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
            if any(name.partition(".")[0] in ("pyspark", "py4j") for name in modules):
                return True
        error = error.__cause__ or error.__context__
    return False


def _of_storage(error: BaseException, text: str, settings: "Settings | None") -> str | None:
    code = error.errno if isinstance(error, OSError) else None
    if FULL.search(text) or code in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"no space left for {_places(settings)}: free some, and run again; the unfinished batch is done again as a"
            " whole"
        )
    if READ_ONLY.search(text) or code == errno.EROFS:
        return f"{_path(error, text)}: the file system is read-only: mount it for writing, and {AGAIN}"
    if MOUNT.search(text) or code in MOUNT_CODES:
        return f"{_path(error, text)}: its file system is lost ({_first(text)}): mount it again, and {AGAIN}"
    if isinstance(error, PermissionError) or DENIED.search(text):
        return f"{_path(error, text)}: permission denied: let {user()} read and write there (`mosq pipeline doctor`)"
    if LOST.search(text):
        return f"{_path(error, text)} is gone: is its file system mounted? Restore it, and {AGAIN}"
    return None


def _of_spark(text: str, settings: "Settings | None") -> str | None:
    if MEMORY.search(text):
        where = "pipeline.toml" if settings is None else str(settings.file)
        now = "" if settings is None else f" (now {settings.batch_rows:,})"
        return (
            f"a batch does not fit into Spark's memory: in {where} set a smaller [pipeline] batch_rows{now}, or more"
            ' memory ([spark] "spark.driver.memory" = "4g"), and run again'
        )
    if MASTER.search(text):
        return f"Spark's master does not answer or is none ({_first(text)}): start it, or correct [pipeline] master"
    if (program := PYTHON.search(text)) is not None:
        return (
            f"a machine of the cluster has no {program[1]}: install the driver's version of Python there, and name its"
            ' program in [spark] "spark.pyspark.python" (docs/pipeline-cluster.md)'
        )
    if VERSIONS.search(text):
        return (
            "the Python of the executors has another version than the driver's: install the same one there, and name"
            ' its program in [spark] "spark.pyspark.python" (docs/pipeline-cluster.md)'
        )
    if (module := NO_MODULE.search(text)) is not None:
        return (
            f"an executor has no package {module[1]}: install it there, or send it: `mosq pipeline package`"
            " (docs/pipeline-cluster.md)"
        )
    if "failed to connect back" in text:
        return (
            "a Python worker of Spark did not start within the ten seconds that Spark waits: this machine is"
            " overloaded; run again"
        )
    if WORKER.search(text):
        return f"a Python worker of Spark has died: was it killed, or did memory run out? {AGAIN.capitalize()}"
    if EXECUTOR.search(text):
        return f"an executor of Spark has died: was it killed, or did memory run out? {AGAIN.capitalize()}"
    return _of_the_jvm() if GONE.search(text) else None


def _of_the_jvm() -> str:
    """Return how the JVM of this process has ended, or that only a connection to it has."""
    core = sys.modules.get("pyspark.core.context")
    process = None if core is None else getattr(core.SparkContext._gateway, "proc", None)
    again = AGAIN.capitalize()
    if process is None:
        return f"Spark's JVM has ended: was it killed, or did memory run out? {again}"
    try:
        status = process.wait(JVM_ENDS_S)
    except subprocess.TimeoutExpired:
        return f"a connection within Spark broke, and its JVM still runs: the machine may be overloaded. {again}"
    if status == -signal.SIGKILL:
        return (
            "Spark's JVM was killed: by an operator, or by the kernel because memory ran out (`dmesg` names it then)."
            f' Free some memory, or set a smaller [spark] "spark.driver.memory". {again}'
        )
    if status in (-signal.SIGTERM, 128 + signal.SIGTERM):
        return f"Spark's JVM was ended by SIGTERM. {again}"
    return f"Spark's JVM has ended with status {status}; its own message, if it wrote one, stands above. {again}"


def _places(settings: "Settings | None") -> str:
    if settings is None:
        return "the files of Spark (/tmp)"
    local = os.environ.get("SPARK_LOCAL_DIRS") or settings.spark.get("spark.local.dir", "/tmp")
    return f"{settings.tables}, {settings.checkpoints} or Spark's own files ({local})"


def _path(error: BaseException, text: str) -> str:
    if isinstance(error, OSError) and error.filename:
        return str(error.filename)
    found = PATH.search(text)
    return found[1] if found else "a file"


def _first(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:200] if lines else "no more is known"


@contextlib.contextmanager
def plain_errors(settings: "Settings | None" = None) -> "Iterator[None]":
    """Raise MosqPipelineError with a better text for an exception in the block, if there is one."""
    try:
        yield
    except Exception as error:
        text = explained(error, settings)
        if text is None:
            raise
        raise MosqPipelineError(text) from error


def quiet() -> None:
    """Keep Spark's libraries from printing tracebacks of connections to a dead JVM."""
    from pyspark import accumulators

    for name in ("py4j", "pyspark"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)  # it also logs without a name; a filter is added once
    for server in vars(accumulators).values():
        if isinstance(server, type) and issubclass(server, socketserver.BaseServer):
            server.handle_error = _silent  # type: ignore[assignment,method-assign]
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _of_thread


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _of_thread(arguments: "threading.ExceptHookArgs") -> None:
    """Print the exception that ended a thread, unless it is a thread of Spark whose JVM is dead."""
    if not _of_a_dead_jvm(arguments.exc_value):
        threading.__excepthook__(arguments)


def _silent(server: object, request: object, address: object) -> None:
    """Print nothing when the JVM closes a connection: its death is reported elsewhere."""
