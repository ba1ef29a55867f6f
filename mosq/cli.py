"""The `mosq` command. Only reads the command line; imports what a command needs when it runs, since the broker has 100 ms to listen.

Further commands (`mosq passwd`, `mosq ctl`) are subcommands of the same group; without one, the broker runs.
"""

import sys
from typing import TYPE_CHECKING

import click

from mosq import __version__

if TYPE_CHECKING:
    from mosq.config.model import Config

EXAMPLES = """\b
Examples:
  mosq                              clients of this machine only, on port 1883
  mosq -v -p 1884                   the same on port 1884, telling everything it does
  mosq -c /etc/mosquitto/mosquitto.conf
  mosq -c mosq.conf -d              in the background, once it listens
  mosq -c mosq.conf --test-config   only check the file

\b
Exit status: 0 stopped by SIGTERM or SIGINT; 1 cannot start (such as a port in use); 3 a mistake in the configuration or the
command line.
"""

EXIT_OK = 0
EXIT_USAGE = 3


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
             epilog=EXAMPLES)
@click.option("-c", "--config-file", "config_file", metavar="FILE", help="The configuration, a mosquitto.conf.")
@click.option("-p", "--port", "ports", metavar="PORT", type=click.IntRange(1, 65535), multiple=True,
              help="Listen on this port of this machine only; up to 10 times; ignored if the configuration has a listener.")
@click.option("-d", "--daemon", "background", is_flag=True, help="Run in the background, once the broker listens.")
@click.option("-q", "--quiet", is_flag=True, help="Log nothing; overrides -v and the configuration.")
@click.option("-v", "--verbose", is_flag=True, help="Log everything; overrides the configuration.")
@click.option("--test-config", "test_config", is_flag=True, help="Check the configuration file and end; needs -c.")
@click.version_option(__version__, message="mosq version %(version)s")
@click.pass_context
def cli(context: click.Context, config_file: str | None, ports: tuple[int, ...], background: bool, quiet: bool, verbose: bool,
        test_config: bool) -> int:
    """An MQTT broker for MQTT 3.1, 3.1.1 and 5.0 that takes Mosquitto's place and reads its configuration."""
    if context.invoked_subcommand is not None:
        return EXIT_OK
    from mosq.config.errors import ConfigError
    from mosq.config.parser import load_config

    if test_config and config_file is None:
        raise click.UsageError("--test-config needs a file to check; expected `-c FILE`.")
    try:
        config = load_config(config_file, ports)
        if test_config:
            return _test(config)
    except ConfigError as error:
        click.echo(str(error), err=True)
        return EXIT_USAGE
    from mosq.control import serve

    return serve(config, quiet=quiet, verbose=verbose, background=background)


def _test(config: "Config") -> int:
    from mosq.settings import engine_acl

    engine_acl(config)
    for warning in config.warnings:
        click.echo(f"Warning: {warning}", err=True)
    click.echo("Configuration file is OK.")
    return EXIT_OK


def main() -> int:
    """The command's entry point: returns its exit status."""
    try:
        status = cli.main(prog_name="mosq", standalone_mode=False)
    except click.ClickException as error:
        click.echo(f"Error: {error.format_message()}\nTry 'mosq -h' for help.", err=True)
        return EXIT_USAGE
    except click.Abort:
        return EXIT_OK
    return status if isinstance(status, int) else EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
