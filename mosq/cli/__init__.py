"""The command line: the command `mosq` and its subcommands.

Importing this package imports only `start`, which imports no other module of mosq before it knows what to run.
"""

import sys

from mosq.cli.start import EXIT_NOT_BUILT, plain_start, run

__all__ = ["main"]


def main() -> int:
    """Run the command; return its exit status."""
    start = plain_start(sys.argv[1:])
    try:
        if start is not None and start.test_config:
            from mosq.cli.check import check

            return check(start.config_file or "")
        if start is not None:
            return run(start)
        from mosq.cli.commands import main as commands

        return commands(sys.argv[1:])
    except ImportError as error:
        from mosq.built import why_not_loaded

        line = why_not_loaded(error)
        if not line:
            raise
        print(line, file=sys.stderr)
        return EXIT_NOT_BUILT
