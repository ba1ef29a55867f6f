"""`mosq ctl` for the command line, loaded when it is used: importing it takes as long as importing everything else."""

import click

from mosq.cli.lazy_command import LazyCommand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class LazyGroup(click.Command):
    """Stands for the group of commands, which is imported on use."""

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None,
                     **extra: "Any") -> click.Context:
        from mosq.tools.ctl.command import ctl

        # it imports paho, which the help and the commands on files do not need
        ctl.add_command(LazyCommand("retained", "mosq.tools.clients.retained:retained",
                                    "List, print and remove retained messages; any broker."))
        return ctl.make_context(info_name, args, parent, **extra)


ctl = LazyGroup("ctl", help="Administer a running broker, mosq or Mosquitto: dynamic security, listeners, clients.")
