"""Explain errors of Spark in one text with advice.

Spark passes on an exception of the JVM that contains a traceback of a worker that contains our own message, all as
text.
"""

import contextlib
import errno
import re
from typing import TYPE_CHECKING

from mosq.pipeline import MosqPipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosq.pipeline.settings import Settings

# our own message, up to the line with which the traceback continues
OURS = re.compile(
    r"MosqPipelineError: (.+?)(?=\n\s*\n|\n\s*at |\nTraceback|\nDriver stacktrace|\n\S*Error|\Z)", re.DOTALL
)
FULL = re.compile(r"No space left on device|Disk quota exceeded|ENOSPC", re.IGNORECASE)
MEMORY = re.compile(r"OutOfMemoryError|Java heap space|MemoryError|maxResultSize")
GONE = re.compile(
    r"Py4JNetworkError|Connection refused|Answer from Java side is empty|SparkContext was shut down|stopped"
    r" SparkContext"
)


def explained(error: BaseException, settings: "Settings") -> str | None:
    """Return a better text for an error, or None if there is none."""
    if isinstance(error, MosqPipelineError):
        return str(error)
    text = str(error)
    if (ours := OURS.search(text)) is not None:
        return ours[1].strip()
    if FULL.search(text) or (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)):
        return (
            f"no space left for {settings.tables}, {settings.checkpoints} or Spark's own files"
            f" ({settings.spark.get('spark.local.dir', '/tmp')}): free some or compact (`mosq pipeline compact`), and"
            " run again; the unfinished batch is done again as a whole"
        )
    if isinstance(error, PermissionError):
        return f"{error.filename}: {error.strerror}; let this user write there"
    if MEMORY.search(text):
        return (
            f"a batch does not fit into Spark's memory: in {settings.file} set a smaller [pipeline] batch_rows (now"
            f' {settings.batch_rows:,}), or more memory ([spark] "spark.driver.memory" = "4g"), and run again'
        )
    if "failed to connect back" in text:
        return (
            "a Python worker of Spark did not start within the ten seconds that Spark waits: this machine is"
            " overloaded; run again"
        )
    if GONE.search(text):
        return "Spark's JVM has ended: was it killed, or did memory run out? Run again: it continues where it was"
    return None


@contextlib.contextmanager
def plain_errors(settings: "Settings") -> "Iterator[None]":
    """Raise MosqPipelineError with a better text for an exception in the block, if there is one."""
    try:
        yield
    except Exception as error:
        text = explained(error, settings)
        if text is None:
            raise
        raise MosqPipelineError(text) from error
