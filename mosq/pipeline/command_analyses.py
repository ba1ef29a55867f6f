"""`match`, `capacity`, `report`: what the tables are asked."""

import click

COMMANDS: tuple[click.Command, ...] = ()
