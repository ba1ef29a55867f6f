"""The shell of `mosq ctl`: many commands over one connection. As in mosquitto_ctrl's shell, its modes are: not
connected, connected, in a module. Its own commands (auth, connect, disconnect, help, return, exit) are available in
suitable modes.

The tab key completes commands and names of clients, groups and roles. Names are fetched once and forgotten after a
command that may change them. The history is not saved, because it may contain passwords. Without a terminal, the shell
reads commands from standard input and ends with status 1 at the first that fails.
"""

import cmd
import shlex
import sys

import click

from mosq.tools.ctl.connection import Connection, ConnectionProblemError
from mosq.tools.ctl.conversation import Conversation, NoAnswerError
from mosq.tools.ctl.dynsec import TOPIC as DYNSEC
from mosq.tools.ctl.spec import ALLOW, CLIENT, GROUP, ROLE, USER, BadInputError, nearest
from mosq.tools.ctl.terminal import EXIT_FAILED, EXIT_OK, print_response, prompt_passwords, secret

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from mosq.tools.ctl.spec import Module, Spec

OWN = {
    "auth": ("auth [username]", "Set the user name for the login; prompts for the password."),
    "connect": ("connect [URL]", "Connect to a broker: mqtt, mqtts, ws or wss://HOST[:PORT]; by default localhost."),
    "disconnect": ("disconnect", "Disconnect from the broker."),
    "exit": ("exit", "Quit the program."),
    "help": ("help [command]", "Show help on a command. Press tab twice to list the commands."),
    "return": ("return", "Leave the module."),
}
NAMES_OF = {USER: ("listClients", "clients", DYNSEC), GROUP: ("listGroups", "groups", DYNSEC),
            ROLE: ("listRoles", "roles", DYNSEC), CLIENT: ("listClients", "clients", "$CONTROL/mosq/broker/v1")}
NAMES_MAX = 1000                # largest number of client names for completion
CHANGES = ("create", "delete")


class Shell(cmd.Cmd):
    """The loop over lines is `cmd`'s; the tables define the commands."""

    def __init__(self, connection: Connection, modules: "Sequence[Module]", as_json: bool = False) -> None:
        super().__init__()
        self.connection, self.modules, self.as_json = connection, {one.name: one for one in modules}, as_json
        self.conversation: Conversation | None = None
        self.module: Module | None = None
        self.status = EXIT_OK
        self.is_interactive = sys.stdin.isatty()
        self.use_rawinput = self.is_interactive
        self._names: dict[str, list[str]] = {}

    def run(self, connect: bool) -> int:
        """Run the shell; return the exit status. `connect`: connect first."""
        if self.is_interactive:
            try:
                import readline

                readline.set_completer_delims(" \t")     # names may contain - and /
            except ImportError:
                pass
            click.echo("mosq ctl shell. `help` lists the commands.")
        if connect:
            self._own("connect", [])
        self._prompt()
        while True:
            try:
                if self.status != EXIT_OK and not self.is_interactive:
                    return self.status
                self.cmdloop()
                return self.status if not self.is_interactive else EXIT_OK
            except KeyboardInterrupt:
                click.echo("")
            finally:
                if self._ended:
                    self._close()

    _ended = False

    # ------------------------------------------------------------ one line

    def onecmd(self, line: str) -> bool:
        """Run one line; return whether it was the last."""
        if line == "EOF":
            if self.is_interactive:
                click.echo("")
            self._ended = True
            return True
        try:
            words = shlex.split(line, comments=not self.is_interactive)
        except ValueError as error:
            self._wrong(f"{error}.")
            return self._is_over()
        if words:
            self._do(words[0], words[1:])
        return self._is_over()

    def postcmd(self, stop: bool, line: str) -> bool:
        self._prompt()
        return stop

    def _is_over(self) -> bool:
        if self.status != EXIT_OK and not self.is_interactive:
            self._ended = True
        return self._ended

    def _prompt(self) -> None:
        where = self.connection.url if self.conversation is not None else ""
        self.prompt = f"{where}{'|' + self.module.name if self.module else ''}> " if self.is_interactive else ""

    def _do(self, name: str, words: list[str]) -> None:
        spec = self.module.find(name) if self.module is not None else None
        try:
            if spec is not None:
                self._run_command(spec, words)
            elif name.lower() in self._available():
                self._own(name.lower(), words)
            elif self.conversation is None and self._is_known(name):
                self._wrong("Not connected: `connect` first.")
            else:
                self._wrong(f"Unknown command '{name}'{self._near(name)}")
        except BadInputError as error:
            self._wrong(str(error))
        except NoAnswerError as error:
            self._wrong(str(error))
            if self.conversation is not None and self.conversation.closed:
                self._close()

    def _wrong(self, text: str) -> None:
        self.status = EXIT_FAILED
        click.echo(text, err=not self.is_interactive)

    # ------------------------------------------------------------ commands of modules

    def _run_command(self, spec: "Spec", words: list[str]) -> None:
        assert self.module is not None
        assert self.conversation is not None
        values = spec.read(_in_order(spec, words))
        prompt_passwords(spec, values)
        if spec.name.startswith(CHANGES):
            self._names.clear()
        response = self.conversation.send(self.module.topic_of(spec), spec.command(values))
        self.status = print_response(spec, response, self.as_json)
        if self.status == EXIT_OK and spec.show is None and not self.as_json:
            click.echo("OK")

    # ------------------------------------------------------------ the shell's own commands

    def _available(self) -> list[str]:
        if self.conversation is None:
            return ["auth", "connect", "exit", "help"]
        if self.module is None:
            return [*self.modules, "disconnect", "exit", "help"]
        return ["disconnect", "exit", "help", "return"]

    def _is_known(self, name: str) -> bool:
        """Return whether the command exists in any mode."""
        return (name.lower() in OWN or name.lower() in self.modules
                or any(module.find(name) is not None for module in self.modules.values()))

    def _near(self, name: str) -> str:
        """Return the commands of this mode that may be meant, as a second sentence."""
        specs = self.module.specs.values() if self.module is not None else ()
        near = nearest(name, [*(spec.name for spec in specs), *self._available()])
        return f".{near}" if near else ""

    def _own(self, name: str, words: list[str]) -> None:
        self.status = EXIT_OK
        if name in self.modules:
            self.module = self.modules[name]
        elif name == "help":
            self._help(words)
        elif name == "exit":
            self._ended = True
        elif name == "return":
            self.module = None
        elif name == "disconnect":
            self._close()
        elif name == "auth":
            self._auth(words)
        else:
            self._connect(words)

    def _auth(self, words: list[str]) -> None:
        if words:
            username = words[0]
        else:
            click.echo("username: ", nl=False)
            username = sys.stdin.readline().strip()
        self.connection.username = username or None
        self.connection.password = secret("password: ") if username else None

    def _connect(self, words: list[str]) -> None:
        try:
            if words:
                self.connection.take_url(words[0])
            if self.connection.username is not None and self.connection.password is None:
                self.connection.password = secret(f"Password for {self.connection.username}: ")
            self.conversation = Conversation(self.connection)
        except (ConnectionProblemError, NoAnswerError) as error:
            self._wrong(str(error))

    def _close(self) -> None:
        self.module = None
        self._names.clear()
        if self.conversation is not None:
            self.conversation.close()
            self.conversation = None

    def _help(self, words: list[str]) -> None:
        if words:
            spec = self.module.find(words[0]) if self.module is not None else None
            if spec is None and words[0] not in self._available():
                raise BadInputError(f"Unknown command '{words[0]}'{self._near(words[0])}")
            usage, text = (spec.usage, spec.help) if spec is not None else self._own_help(words[0])
            click.echo(f"{usage}\n\n{text}")
            return
        rows = [(spec.usage, spec.help) for spec in self.module.specs.values()] if self.module is not None else []
        rows += [self._own_help(name) for name in self._available()]
        for usage, text in rows:
            click.echo(f"{usage}\n    {text}")

    def _own_help(self, name: str) -> tuple[str, str]:
        return OWN[name] if name in OWN else (name, self.modules[name].help)

    # ------------------------------------------------------------ completion

    def complete(self, text: str, state: int) -> "Any":
        found = super().complete(text, state)
        # Python's readline appends no space to a complete word
        return f"{found} " if found is not None and len(self.completion_matches or ()) == 1 else found

    def completenames(self, text: str, *ignored: object) -> list[str]:
        known = [spec.name for spec in self.module.specs.values()] if self.module is not None else []
        return [name for name in [*known, *self._available()] if name.lower().startswith(text.lower())]

    def completedefault(self, *given: object) -> list[str]:
        text, line, begin = str(given[0]), str(given[1]), int(str(given[2]))
        words = line[:begin].split()
        if words and words[0].lower() == "help":
            return self.completenames(text)
        spec = self.module.find(words[0]) if self.module is not None and words else None
        if spec is None:
            return []
        return [name for name in self._choices(spec, words[1:]) if name.lower().startswith(text.lower())]

    def _choices(self, spec: "Spec", before: list[str]) -> list[str]:
        flags = {flag: arg for arg in spec.args for flag in arg.flags}
        if before and before[-1] in flags:
            arg = flags[before[-1]]
        else:
            places = [arg for arg in spec.args if not arg.flags]
            at = sum(word not in flags and (not n or before[n - 1] not in flags) for n, word in enumerate(before))
            if at >= len(places):
                return list(flags)
            arg = places[at]
        return list(arg.kind) if isinstance(arg.kind, tuple) else self._names_of(arg.kind)

    def _names_of(self, kind: str) -> list[str]:
        if kind not in NAMES_OF or self.conversation is None:
            return []
        if kind not in self._names:
            command, array, topic = NAMES_OF[kind]
            count = {"count": NAMES_MAX} if kind == CLIENT else {}
            try:
                data = self.conversation.send(topic, {"command": command, **count})["data"]
                found = [one if isinstance(one, str) else one[kind] for one in data[array]]
            except (NoAnswerError, KeyError, TypeError):
                found = []
            self._names[kind] = [name for name in found if isinstance(name, str)]
        return self._names[kind]

    # features of `cmd` that this shell switches off
    def emptyline(self) -> bool:
        return False

    def get_names(self) -> list[str]:
        return []


def _in_order(spec: "Spec", words: list[str]) -> list[str]:
    """Reorder `addRoleACL ROLE TYPE allow|deny [PRIORITY] TOPIC`, which mosquitto_ctrl's shell accepts and its command
    line does not."""
    if spec.name == "addRoleACL" and 4 <= len(words) <= 5 and words[2].lower() in ALLOW:
        return [*words[:2], words[-1], words[2], *words[3:-1]]
    return words
