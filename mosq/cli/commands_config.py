"""`mosq config diff` and `mosq config explain`: show what would change, and the source of each value. Starts
nothing."""

import click

from mosq.config.options import LISTENER_RESTART, LIVE, NEW, RESTART

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.config.change import Change
    from mosq.config.explain import Explanation
    from mosq.config.model import Config

EXIT_OK, EXIT_DIFFERS, EXIT_CONFIG = 0, 1, 3
FILE = click.Path(dir_okay=True)        # the reader reports errors in it

CLASSES = {LIVE: "At once:", NEW: "For new connections:", LISTENER_RESTART: "After a restart of the listener:",
           RESTART: "Only after a restart of the broker:"}

DIFF_EPILOG = """\b
Examples:
  mosq config diff /etc/mosquitto/mosquitto.conf new.conf
  mosq config diff --json old.conf new.conf | jq '.[] | select(.reload != "live")'

\b
Exit status, as with diff:
  0  both have the same meaning
  1  they differ
  3  one of them cannot be read
"""
EXPLAIN_EPILOG = """\b
Examples:
  mosq config explain -c mosquitto.conf                    what the file sets
  mosq config explain -c mosquitto.conf allow_anonymous    one option, everywhere
  mosq config explain -c mosquitto.conf --all              with all defaults
"""


@click.group()
def config() -> None:
    """Compare and explain configuration files."""


@config.command(epilog=DIFF_EPILOG)
@click.argument("old", type=FILE)
@click.argument("new", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print a list in JSON.")
@click.pass_context
def diff(context: click.Context, /, old: str, new: str, as_json: bool) -> int:
    """Show what a reload (SIGHUP) would change if the broker runs with OLD and reads NEW."""
    from mosq.config.change import changes

    found = changes(_load(context, old), _load(context, new))
    if as_json:
        import json

        click.echo(json.dumps([{"option": change.option, "scope": change.scope, "old": change.old, "new": change.new,
                                "reload": change.reload} for change in found], ensure_ascii=False, indent=1))
    else:
        click.echo("\n\n".join(_report(found)) or "Both have the same meaning.")
    return EXIT_DIFFERS if found else EXIT_OK


def _report(found: "list[Change]") -> list[str]:
    parts = []
    for reload, title in CLASSES.items():
        lines = [f"  {change}" for change in found if change.reload == reload]
        if lines:
            parts.append("\n".join((title, *lines)))
    return parts


@config.command(epilog=EXPLAIN_EPILOG)
@click.option("-c", "--config-file", "config_file", metavar="FILE", type=FILE, required=True,
              help="Configuration file (mosquitto.conf).")
@click.option("-a", "--all", "everything", is_flag=True, help="Also show options that are not set.")
@click.option("--json", "as_json", is_flag=True, help="Print a list in JSON.")
@click.argument("option", required=False)
@click.pass_context
def explain(context: click.Context, /, config_file: str, everything: bool, as_json: bool, option: str | None) -> int:
    """Show the source of each value: a line of a file, a default, or another option that implies it."""
    from mosq.config.explain import explain as explained
    from mosq.config.options import BY_KEYWORD, find_option

    if option is not None and find_option(option) is None:
        from difflib import get_close_matches

        near = get_close_matches(option.lower(), list(BY_KEYWORD), n=1, cutoff=0.6)
        raise click.BadParameter(f"unknown option '{option}'." + (f" Did you mean '{near[0]}'?" if near else ""),
                                 param_hint="OPTION")
    found = [one for one in explained(_load(context, config_file), option)
             if everything or option is not None or not one.is_default]
    if as_json:
        import json

        click.echo(json.dumps([{"option": one.option, "scope": one.scope, "value": one.value, "source": one.source,
                                "default": one.is_default} for one in found], ensure_ascii=False, indent=1))
        return EXIT_OK
    if option is not None:
        _describe(option)
    _table(found)
    return EXIT_OK


def _describe(keyword: str) -> None:
    from mosq.config.options import find_option

    option = find_option(keyword)
    assert option is not None
    click.echo(f"{option.name}: {option.help}.\n  expects {option.expected()}; a change applies: {option.reload}\n")


def _table(found: "list[Explanation]") -> None:
    scope = None
    width = min(max((len(f"{one.option} {one.value}") for one in found), default=0), 60)
    for one in found:
        if one.scope != scope:
            scope = one.scope
            click.echo(f"{scope}:")
        click.echo(f"  {f'{one.option} {one.value}':{width}}  # {one.source}")
    if not found:
        click.echo("The file sets nothing.")


def _load(context: click.Context, path: str) -> "Config":
    from mosq.config.errors import ConfigError
    from mosq.config.parser import load_config

    try:
        return load_config(path)
    except ConfigError as error:
        click.echo(str(error), err=True)
        context.exit(EXIT_CONFIG)
