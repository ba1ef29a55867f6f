"""The command line: the command `mosq` and its subcommands.

Importing this package loads `start` only, which imports no other module of mosq before it knows what to run.
"""

from mosq.cli.start import main

__all__ = ["main"]
