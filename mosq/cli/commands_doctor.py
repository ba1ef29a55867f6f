"""`mosq doctor FILE`: the command and its report. mosq/tools/doctor/findings.py has the checks."""

import click

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.tools.doctor.findings import Finding

EXIT_OK, EXIT_ATTENTION, EXIT_CONFIG = 0, 1, 3
TITLES = (("same", "The same as with Mosquitto", "="), ("better", "Better with mosq", "+"),
          ("attention", "Needs attention", "!"))

EPILOG = """\b
Examples:
  mosq doctor /etc/mosquitto/mosquitto.conf
  sudo mosq doctor /etc/mosquitto/mosquitto.conf     also examines what the broker's user may do
  mosq doctor --json mosquitto.conf | jq '.findings[] | select(.level == "attention")'

\b
Exit status:
  0  nothing needs attention
  1  something needs attention; see the list
  3  the file cannot be read, or the broker will not start with it
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print one object in JSON.")
@click.pass_context
def doctor(context: click.Context, /, file: str, as_json: bool) -> int:
    """Read a mosquitto.conf and show what stays the same, what is better, and what needs attention."""
    from mosq.config.errors import ConfigError
    from mosq.tools.doctor.findings import examine

    try:
        _, found = examine(file)
    except ConfigError as error:
        _refused(file, error, as_json)
        context.exit(EXIT_CONFIG)
    attention = sum(finding.level == "attention" for finding in found)
    stops = any(finding.stops for finding in found)
    if as_json:
        _print_json({"file": file, "attention": attention, "starts": not stops, "findings": [
            {"level": one.level, "text": one.text, "where": one.origin, "advice": one.advice} for one in found]})
    else:
        _print(file, found)
    return EXIT_CONFIG if stops else EXIT_ATTENTION if attention else EXIT_OK


def _refused(file: str, error: Exception, as_json: bool) -> None:
    if as_json:
        _print_json({"file": file, "error": str(error)})
        return
    click.echo(f"{error}\n\nThe broker will not start with this file. Mosquitto 2.1 does not either, except in "
               "the cases that docs/differences.md lists. Correct that line first.", err=True)


def _print_json(content: object) -> None:
    import json

    click.echo(json.dumps(content, ensure_ascii=False, indent=1))


def _shown(origin: str, file: str) -> str:
    return f"line {origin.removeprefix(f'{file}:')}" if origin.startswith(f"{file}:") else origin


def _print(file: str, found: "list[Finding]") -> None:
    click.echo(f"{file}\n")
    for level, title, mark in TITLES:
        lines = [one for one in found if one.level == level]
        if not lines:
            continue
        click.echo(f"{title}:")
        for one in lines:
            where = f"  ({_shown(one.origin, file)})" if one.origin else ""
            click.echo(f"  {mark} {one.text.replace(f'({file}:', '(line ')}{where}")
            if one.advice:
                click.echo(f"      {one.advice}")
        click.echo()
    attention = sum(one.level == "attention" for one in found)
    if not attention:
        click.echo("Nothing needs attention: start mosq with this file.")
        return
    stops = " The broker will not start with this file." if any(one.stops for one in found) else ""
    click.echo(f"{attention} {'thing needs' if attention == 1 else 'things need'} attention.{stops}")
