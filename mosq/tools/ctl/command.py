"""`mosq ctl` on the command line: modules and commands, built from the tables. Without a module, it starts the
shell."""

import click

from mosq.tools.ctl import broker, dynsec, options
from mosq.tools.ctl.spec import BadInputError, nearest
from mosq.tools.ctl.terminal import EXIT_FAILED, EXIT_OK, new_secret, print_response, prompt_passwords, secret
from mosq.tools.terminal import escape_unknown_characters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mosq.tools.ctl.connection import Connection
    from mosq.tools.ctl.spec import Module, Spec, Values

MODULES = (dynsec.MODULE, broker.MODULE)
SETTINGS = {"help_option_names": ["--help"], "max_content_width": 100}

EPILOG = """\b
Examples:
  mosq ctl                                          start a shell; `help` lists its commands
  mosq ctl dynsec init dynsec.json admin            make a first file for the dynamic security plugin
  mosq ctl -u admin dynsec createClient ann         prompts for both passwords
  mosq ctl -u admin dynsec addRoleACL sensor publishClientSend 'site/#' allow
  mosq ctl -u admin -P secret --json dynsec getClient ann
  mosq ctl broker listClients                       list clients and their queues (mosq only)
  mosq ctl broker kickClient sensor-7

\b
Options are also read from ~/.config/mosquitto_ctrl, one per line, as in mosquitto_ctrl. All commands:
docs/control.md.

\b
Exit status:
  0  done
  1  not done: no broker there, login refused, an error in its answer
  3  error in the command line
"""


class Given:
    """The options before the module."""

    def __init__(self, connection: "Connection", as_json: bool, quiet: bool, data_file: str | None,
                 has_address: bool) -> None:
        self.connection, self.as_json, self.quiet, self.data_file = connection, as_json, quiet, data_file
        self.has_address = has_address          # a host or user is given: the shell connects at once


class AnyCase(click.Group):
    """Finds names of modules and commands case-insensitively, as in mosquitto_ctrl."""

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        found = super().get_command(context, name)
        return found or next((one for known, one in self.commands.items() if known.lower() == name.lower()), None)

    def resolve_command(self, context: click.Context, words: list[str]
                        ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. Raises click.UsageError with the nearest ones; old versions of click suggest none."""
        name = words[0]
        if self.get_command(context, name) is None and not name.startswith("-"):
            homes = [module.name for module in MODULES if self is ctl and module.find(name) is not None]
            hint = "".join(f" Did you mean `mosq ctl {home} {name}`?" for home in homes)
            raise click.UsageError(f"No such command '{name}'.{hint or nearest(name, self.commands)}", context)
        return super().resolve_command(context, words)


@click.group("ctl", cls=AnyCase, invoke_without_command=True, epilog=EPILOG, context_settings=SETTINGS)
@options.connection_options
@options.version_option
@click.pass_context
def ctl(context: click.Context, /, **given: "Any") -> int:
    """Administer a running broker, mosq or Mosquitto: dynamic security, listeners, clients."""
    escape_unknown_characters()
    merged = options.merged(context, given)
    context.obj = Given(options.connection_of(merged), merged["as_json"], merged["quiet"], merged["data_file"],
                        any(merged[name] is not None for name in ("host", "port", "url", "unix", "username")))
    if context.invoked_subcommand is not None:
        return EXIT_OK
    from mosq.tools.ctl.shell import Shell

    return Shell(context.obj.connection, MODULES, context.obj.as_json).run(context.obj.has_address)


def module_group(module: "Module") -> AnyCase:
    """Return the command group of a module."""
    @click.group(module.name, cls=AnyCase, help=module.help, invoke_without_command=True, context_settings=SETTINGS)
    @click.pass_context
    def group(context: click.Context, /) -> int:
        if context.invoked_subcommand is None:
            click.echo(context.get_help())
            return EXIT_FAILED
        return EXIT_OK

    for spec in module.specs.values():
        group.add_command(command_of(module, spec))

    @group.command("help", hidden=True)
    @click.pass_context
    def help_(context: click.Context, /) -> int:
        assert context.parent is not None
        click.echo(context.parent.get_help())
        return EXIT_OK

    return group


def command_of(module: "Module", spec: "Spec") -> click.Command:
    """Return the command line command of a spec."""
    @click.command(spec.name, help=spec.help, context_settings={**SETTINGS, "ignore_unknown_options": True},
                   options_metavar="")
    @click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar=spec.usage.partition(" ")[2] or " ")
    @click.option("--json", "as_json", is_flag=True, help="Print the answer as one line of JSON.")
    @click.pass_obj
    def command(given: Given, /, words: tuple[str, ...], as_json: bool) -> int:
        try:
            values = spec.read(list(words))
        except BadInputError as error:
            raise click.UsageError(str(error)) from None
        given.as_json = given.as_json or as_json
        if given.data_file is not None and spec.name == "setClientPassword":
            return _file_password(given.data_file, spec, values)
        return run(given, module, spec, values)

    return command


def run(given: Given, module: "Module", spec: "Spec", values: "Values") -> int:
    """Run one command over a new connection; return the exit status."""
    from mosq.tools.ctl.connection import ConnectionProblemError
    from mosq.tools.ctl.conversation import Conversation, NoAnswerError

    try:
        prompt_passwords(spec, values)
        connection = given.connection
        if connection.is_readable_by_others and not given.quiet:
            click.echo("Warning: You are running mosq ctl without encryption.\nThis means all of the configuration "
                       "changes you are making are visible on the network, including passwords.\n", err=True)
        if connection.username is not None and connection.password is None:
            connection.password = secret(f"Password for {connection.username}: ")
        conversation = Conversation(connection)
        try:
            response = conversation.send(module.topic_of(spec), spec.command(values))
        finally:
            conversation.close()
    except (ConnectionProblemError, NoAnswerError, BadInputError) as error:
        click.echo(str(error) if str(error).partition(" ")[2].startswith("error:") else f"Error: {error}", err=True)
        return EXIT_FAILED
    except KeyboardInterrupt:
        click.echo("", err=True)
        return EXIT_FAILED
    return print_response(spec, response, given.as_json)


# ---------------------------------------------------------------- the plugin's file

def _file_password(path: str, spec: "Spec", values: "Values") -> int:
    from mosq.tools.ctl.dynsec_file import FileProblemError, set_password

    try:
        prompt_passwords(spec, values)
        set_password(path, values["username"], values["password"])
    except (FileProblemError, BadInputError) as error:
        click.echo(f"Error: {error}", err=True)
        return EXIT_FAILED
    return EXIT_OK


CREATED = """\
The client '{user}' has been created in the file '{file}'.
This client is configured to allow you to administer the dynamic security plugin only.
It does not have access to publish messages to normal topics.
You should create your application clients to do that, for example:
   mosq ctl <connect options> dynsec createClient <username>
   mosq ctl <connect options> dynsec createRole <rolename>
   mosq ctl <connect options> dynsec addRoleACL <rolename> publishClientSend my/topic allow [priority]
   mosq ctl <connect options> dynsec addClientRole <username> <rolename> [priority]
All commands: docs/control.md."""


@click.command(context_settings=SETTINGS)
@click.argument("file")
@click.argument("admin_user", metavar="ADMIN-USER")
@click.argument("admin_password", required=False, metavar="[ADMIN-PASSWORD]")
def init(file: str, admin_user: str, admin_password: str | None) -> int:
    """Write a new file for the dynamic security plugin, with one user that may administer it."""
    from mosq.tools.ctl.dynsec_file import FileProblemError, create

    try:
        password = new_secret(admin_user) if admin_password is None else admin_password
        if not password:
            raise BadInputError("Password is empty.")
        create(file, admin_user, password)
    except (FileProblemError, BadInputError) as error:
        click.echo(str(error) if isinstance(error, FileProblemError) else f"Error: {error}", err=True)
        return EXIT_FAILED
    click.echo(CREATED.format(user=admin_user, file=file))
    return EXIT_OK


for _module in MODULES:
    ctl.add_command(module_group(_module))
_dynsec = ctl.commands["dynsec"]
assert isinstance(_dynsec, click.Group)
_dynsec.add_command(init)
