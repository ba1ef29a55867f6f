"""Show the progress of commands that read long files, and end them quietly if no program reads their output."""

import io
import os
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable


def progress_bar(label: str, length: int, quiet: bool) -> Any:
    """Return a progress bar on stderr, hidden if stderr is no terminal, so that a pipe gets only the result."""
    return click.progressbar(
        length=max(length, 1), label=label, file=sys.stderr, hidden=quiet or not sys.stderr.isatty()
    )


class Bars:
    """Progress bars, one after the other."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self._bar: Any = None

    def begin(self, label: str, length: int) -> "Callable[[int], None]":
        """Show a new bar; return the function that moves it, which may also be called after `end`."""
        self.end()
        bar = self._bar = progress_bar(label, length, self.quiet)
        bar.__enter__()
        return lambda count: bar.update(count)

    def end(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None


def silence_broken_pipe() -> None:
    """Close stdout after BrokenPipeError (`... | head`), so that Python does not report the error again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def escape_unknown_characters() -> None:
    """Let stdout write characters that the terminal's encoding lacks as escapes: names of clients have any."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
