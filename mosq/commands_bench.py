"""`mosq bench` as the command line knows it, loaded when it is asked for."""

import click

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Late(click.Command):
    """Stands for a group that nobody may want."""

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None,
                     **extra: "Any") -> click.Context:
        from mosq.bench.command import bench

        return bench.make_context(info_name, args, parent, **extra)


bench = Late("bench", help="Put a load on a broker, any broker, and say what became of each message.")
