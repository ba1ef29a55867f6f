"""Show the progress of a command."""

from __future__ import annotations

import sys

import click


class Steps:
    """Write progress: one line that is overwritten on a terminal, else a line for each step.

    Results go to standard output.
    """

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.width = quiet, 0
        self.over = sys.stderr.isatty()

    def __call__(self, step: str) -> None:
        if self.quiet:
            return
        if self.over:
            sys.stderr.write("\r" + step.ljust(self.width))
            sys.stderr.flush()
            self.width = len(step)
        else:
            click.echo(step, err=True)

    def result(self, line: str) -> None:
        if not self.quiet:
            click.echo(line)

    def end(self) -> None:
        if self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            self.width = 0
