"""The whole command line of `mosq`, by `click`: options, help, mistakes. Further commands (`mosq passwd`, `mosq ctl`)
become subcommands of the same group; without one, the broker runs.
"""

import click

from mosq import __version__
from mosq.cli import EXIT_CONFIG, Start, run

EXIT_OK = 0

EPILOG = """\b
Examples:
  mosq                              clients of this machine only, on port 1883
  mosq -v -p 1884                   the same on port 1884, telling everything it does
  mosq -c /etc/mosquitto/mosquitto.conf
  mosq -c mosq.conf -d              in the background, once it listens
  mosq -c mosq.conf --test-config   only check the file

\b
Exit status:
  0  stopped by SIGTERM or SIGINT
  1  cannot start, such as a port in use
  3  a mistake in the configuration or the command line
"""


@click.group(invoke_without_command=True, subcommand_metavar="", epilog=EPILOG,
             context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("-c", "--config-file", "config_file", metavar="FILE", help="The configuration, a mosquitto.conf.")
@click.option("-p", "--port", "ports", metavar="PORT", type=click.IntRange(1, 65535), multiple=True,
              help="Listen on this port, for this machine only; up to 10 times; ignored if the configuration has a "
                   "listener.")
@click.option("-d", "--daemon", "background", is_flag=True, help="Run in the background, once the broker listens.")
@click.option("-q", "--quiet", is_flag=True, help="Log nothing; overrides -v and the configuration.")
@click.option("-v", "--verbose", is_flag=True, help="Log everything; overrides the configuration.")
@click.option("--test-config", "test_config", is_flag=True, help="Check the configuration file and end; needs -c.")
@click.version_option(__version__, message="mosq version %(version)s")
@click.pass_context
def mosq(context: click.Context, config_file: str | None, ports: tuple[int, ...], background: bool, quiet: bool,
         verbose: bool, test_config: bool) -> int:
    """An MQTT broker for MQTT 3.1, 3.1.1 and 5.0 that takes Mosquitto's place and reads its configuration."""
    if context.invoked_subcommand is not None:
        return EXIT_OK
    if test_config:
        return check(config_file)
    return run(Start(config_file, ports, background, quiet, verbose))


def check(config_file: str | None) -> int:
    """Reads a configuration and its acl_file, and says whether they are right. Writes nothing anywhere."""
    from mosq.config.errors import ConfigError
    from mosq.config.parser import load_config
    from mosq.settings import engine_acl

    if config_file is None:
        raise click.UsageError("--test-config needs a file to check; expected `-c FILE`.")
    try:
        config = load_config(config_file)
        engine_acl(config)
    except ConfigError as error:
        click.echo(str(error), err=True)
        return EXIT_CONFIG
    for warning in config.warnings:
        click.echo(f"Warning: {warning}", err=True)
    click.echo("Configuration file is OK.")
    return EXIT_OK


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    try:
        status = mosq.main(arguments, prog_name="mosq", standalone_mode=False)
    except click.ClickException as error:
        click.echo(f"Error: {error.format_message()}\nTry 'mosq -h' for help.", err=True)
        return EXIT_CONFIG
    return status if isinstance(status, int) else EXIT_OK
