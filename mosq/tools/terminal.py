"""What commands that read long files show while they do, and how they end where nobody reads them any more."""

import os
import sys
from typing import Any

import click


def progress_bar(label: str, length: int, quiet: bool) -> Any:
    """On a terminal, a bar; else nothing: it goes to stderr, so that a pipe gets the result alone."""
    return click.progressbar(
        length=max(length, 1), label=label, file=sys.stderr, hidden=quiet or not sys.stderr.isatty()
    )


def reader_is_gone() -> None:
    """After BrokenPipeError (`... | head`): Python is not to complain again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
