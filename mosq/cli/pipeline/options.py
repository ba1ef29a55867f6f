"""Define options that several commands have, and the output of their errors."""

import functools
from typing import TYPE_CHECKING, Any

import click

from mosq.pipeline import MosqPipelineError, trouble
from mosq.pipeline.settings import FILE
from mosq.tools.extras import install_advice

if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_OK, EXIT_FAILED, EXIT_ALARM, EXIT_USAGE = 0, 1, 2, 3
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

settings_option = click.option(
    "-s",
    "--settings",
    "file",
    default=FILE,
    show_default=True,
    metavar="FILE",
    type=click.Path(),
    help="File of settings, or its folder.",
)
master_option = click.option(
    "--master", metavar="URL", help='Spark\'s master, such as "local[4]".  [default: from the settings]'
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one object in JSON.")


def guarded(command: "Callable[..., int]") -> "Callable[..., int]":
    """Print errors as one text on stderr, and return the exit status."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> int:
        try:
            return command(*args, **kwargs)
        except MosqPipelineError as error:
            click.echo(f"Error: {error}", err=True)
        except ImportError as error:
            click.echo(
                f"Error: {error.name or error} is not installed: {install_advice('pipeline')};"
                " `mosq pipeline doctor` lists all that is missing",
                err=True,
            )
        except click.ClickException:
            raise
        except click.Abort:             # a question was interrupted or declined; no command writes before its question
            click.echo("\nInterrupted: nothing is written.", err=True)
        except Exception as error:
            text = trouble.explained(error)
            if text is None and isinstance(error, OSError):
                text = f"{error.filename or '?'}: {error.strerror or error}"
            if text is None:
                raise
            click.echo(f"Error: {text}", err=True)
        return EXIT_FAILED

    return run
