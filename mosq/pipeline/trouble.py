"""What went wrong, in one text that says what to do, out of what Spark tells: an exception of the JVM that holds a
traceback of a worker that holds our own message, each as text."""

import contextlib
import errno
import re
from typing import TYPE_CHECKING

from mosq.pipeline import MosqPipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosq.pipeline.settings import Settings

# our own message, up to the line that a traceback goes on with
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
    """None: nothing better can be said than what the error says."""
    if isinstance(error, MosqPipelineError):
        return str(error)
    text = str(error)
    if (ours := OURS.search(text)) is not None:
        return ours[1].strip()
    if FULL.search(text) or (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)):
        return (
            f"no space left for {settings.tables}, {settings.checkpoints} or Spark's own files"
            f" ({settings.spark.get('spark.local.dir', '/tmp')}): free some or compact (`mosq pipeline compact`), and"
            " run again; the batch that was begun is done again as a whole"
        )
    if isinstance(error, PermissionError):
        return f"{error.filename}: {error.strerror}; let this user write there"
    if MEMORY.search(text):
        return (
            f"a batch does not fit into Spark's memory: in {settings.file} take a smaller [pipeline] batch_rows (now"
            f' {settings.batch_rows:,}), or more memory ([spark] "spark.driver.memory" = "4g"), and run again'
        )
    if "failed to connect back" in text:
        return (
            "a Python worker of Spark's did not start within the ten seconds that Spark waits: this machine has too"
            " much to do; run again"
        )
    if GONE.search(text):
        return "Spark's JVM has ended: was it killed, or was there no memory for it? Run again: it goes on where it was"
    return None


@contextlib.contextmanager
def told_plainly(settings: "Settings") -> "Iterator[None]":
    try:
        yield
    except Exception as error:
        text = explained(error, settings)
        if text is None:
            raise
        raise MosqPipelineError(text) from error
