"""`mosq ctl` as the command line knows it, loaded when it is asked for: it takes as long to load as all the rest."""

import click

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Late(click.Command):
    """Stands for a group that nobody may want."""

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None,
                     **extra: "Any") -> click.Context:
        from mosq.tools.ctl.command import ctl

        return ctl.make_context(info_name, args, parent, **extra)


ctl = Late("ctl", help="Administer a running broker, mosq or Mosquitto: dynamic security, listeners, clients.")
