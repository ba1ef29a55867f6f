"""Subcommands that are imported when the user runs them, because their imports take longer than a broker's start."""

import importlib

import click

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class LazyCommand(click.Command):
    """Stands for the command MODULE:NAME until the user runs it."""

    def __init__(self, name: str, where: str, help: str) -> None:
        super().__init__(name, help=help)
        self.where = where

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: "Any"
    ) -> click.Context:
        module, _, name = self.where.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command.make_context(info_name, args, parent, **extra)
