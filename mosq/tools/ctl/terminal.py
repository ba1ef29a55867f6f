"""Shared by the command line and the shell of `mosq ctl`: password prompts and the output of responses."""

import json
import sys

import click

from mosq.log.json_lines import escaped
from mosq.tools.ctl.spec import PASSWORD, BadInputError
from mosq.tools.table import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mosq.tools.ctl.spec import Spec, Values

EXIT_OK, EXIT_FAILED = 0, 1


def print_response(spec: "Spec", response: "dict[str, Any]", as_json: bool) -> int:
    """Print a response; return the exit status."""
    error = response.get("error")
    if as_json:
        click.echo(escaped(json.dumps(response, ensure_ascii=False)))
    elif error is not None:
        click.echo(f"{spec.name}: Error: {shown(str(error))}.", err=True)
    elif spec.show is not None:
        try:
            lines = list(spec.show(response["data"]))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            click.echo("Error: Invalid response from server.", err=True)
            return EXIT_FAILED
        for line in lines:
            click.echo(line)
    return EXIT_OK if error is None else EXIT_FAILED


def secret(prompt: str) -> str:
    """Read a line without echo from the terminal, or from standard input. Raises BadInputError at the end of the
    input."""
    try:
        if sys.stdin.isatty():
            import getpass

            return getpass.getpass(prompt)
        click.echo(prompt, nl=False)
        line = sys.stdin.readline()
        click.echo("")
    except EOFError:
        line = ""
    if not line:
        raise BadInputError("No password was given.")
    return line.rstrip("\r\n")


def new_secret(username: str) -> str:
    """Read a new password twice. Raises BadInputError."""
    first = secret(f"New password for {username}: ")
    if first and secret(f"Reenter password for {username}: ") != first:
        raise BadInputError("Passwords do not match.")
    return first


def prompt_passwords(spec: "Spec", values: "Values") -> None:
    """Prompt for the passwords of a command that are not on the command line. Raises BadInputError."""
    for arg in spec.args:
        if arg.kind != PASSWORD or arg.name in values:
            continue
        may_be_none = bool(arg.flags)
        if may_be_none:
            click.echo(f"Enter new password for {values['username']}. Press return for no password (user will be "
                       "unable to login).")
        password = new_secret(values["username"])
        if password:
            values[arg.name] = password
        elif not may_be_none:
            raise BadInputError("Password is empty.")
