"""Show the progress of commands that read long files, and end them quietly if no program reads their output."""

import os
import sys
from typing import Any

import click


def progress_bar(label: str, length: int, quiet: bool) -> Any:
    """Return a progress bar on stderr, hidden if stderr is no terminal, so that a pipe gets only the result."""
    return click.progressbar(
        length=max(length, 1), label=label, file=sys.stderr, hidden=quiet or not sys.stderr.isatty()
    )


def silence_broken_pipe() -> None:
    """Close stdout after BrokenPipeError (`... | head`), so that Python does not report the error again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
