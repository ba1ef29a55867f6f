"""Commands that are loaded when they are asked for: what they stand on takes longer to import than a broker to
start."""

import importlib

import click

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class LazyCommand(click.Command):
    """Stands for the command MODULE:NAME."""

    def __init__(self, name: str, where: str, help: str) -> None:
        super().__init__(name, help=help)
        self.where = where

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: "Any"
    ) -> click.Context:
        module, _, name = self.where.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command.make_context(info_name, args, parent, **extra)
