"""`mosq passwd`: the options of mosquitto_passwd, in its order, with its exit statuses."""

import os

import click

from mosq.auth.hashes import KINDS, PBKDF2

EXIT_OK, EXIT_FAILED = 0, 1

EPILOG = """\b
Examples:
  mosq passwd -c /etc/mosquitto/passwd ann          make a new file; prompts for the password
  mosq passwd /etc/mosquitto/passwd ben             add another user, or change the password
  mosq passwd -b passwd ben s3cret                  without a prompt; the list of processes shows it
  mosq passwd -D passwd ben                         delete a user
  mosq passwd -H argon2id passwd ann                harder to guess; Mosquitto reads it since 2.1
  mosq passwd -U passwd                             hash a file of `user:password` lines

\b
Exit status:
  0  done
  1  not done; the file is unchanged
  2  not done: the two passwords differ
"""


class PasswdCommand(click.Command):
    """Usage errors end with status 1, as in mosquitto_passwd."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(context, args)
        except click.UsageError as error:
            click.echo(f"Error: {error.format_message()}\n{context.get_usage()}", err=True)
            context.exit(EXIT_FAILED)


@click.command(cls=PasswdCommand, epilog=EPILOG, no_args_is_help=False,
               context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False})
@click.option("-H", "kind", metavar="|".join(KINDS), default=PBKDF2, show_default=True, help="Form of the hash.")
@click.option("-I", "iterations", metavar="N", help="Iterations of sha512-pbkdf2.  [default: 1000]")
@click.option("-b", "batch", is_flag=True, help="Take the password from the command line.")
@click.option("-c", "new", is_flag=True,
              help="Make a new file, or replace the existing one. FILE -: print the line to standard output.")
@click.option("-D", "remove", is_flag=True, help="Delete the user.")
@click.option("-U", "upgrade", is_flag=True, help="Hash all plain-text passwords of a file.")
@click.argument("words", nargs=-1, metavar="FILE [USER [PASSWORD]]", type=click.UNPROCESSED)
@click.pass_context
def passwd(                             # parameters: one for each option of the command
        context: click.Context, /, kind: str, iterations: str | None, batch: bool, new: bool, remove: bool,
        upgrade: bool, words: tuple[str, ...]) -> int:
    """Manage the password file of a broker: add USER to FILE, or change the password."""
    from mosq.cli import passwd as file

    try:
        if kind not in KINDS:
            raise file.PasswdError(f"Error: Unknown hash type '{kind}'")
        _exclusive(batch, new, remove, upgrade)
        hashing = file.Hashing(kind, None if iterations is None else _number(iterations))
        wanted = 1 if upgrade else 3 if batch else 2
        if len(words) != wanted:
            names = ("password file", "username", "password")[:wanted]
            raise file.PasswdError(f"Error: Expected {', '.join(names)}; got {len(words)} of them.\n"
                                   f"{context.get_usage()}")
        if upgrade:
            file.hash_plain(words[0], hashing, click.echo)
            return EXIT_OK
        path, user = words[:2]
        file.check_user(user)
        if remove:
            file.delete(path, user)
            return EXIT_OK
        if not new and not os.path.exists(path):     # checked before the user types a password
            advice = f"{os.strerror(2)}. -c makes a new file."
            raise file.PasswdError(f"Error: Unable to open password file {path}. {advice}")
        password = os.fsencode(words[2]) if batch else file.prompt_password()
        file.check_password(password)
        (file.create if new else file.update)(path, user, password, hashing, click.echo)
    except file.PasswdError as error:
        click.echo(str(error), err=True)
        return error.status
    except KeyboardInterrupt:
        click.echo("", err=True)
        return EXIT_FAILED
    return EXIT_OK


def _exclusive(batch: bool, new: bool, remove: bool, upgrade: bool) -> None:
    from mosq.cli.passwd import PasswdError

    given = [flag for flag, is_given in (("-c", new), ("-D", remove), ("-U", upgrade)) if is_given]
    if batch and (remove or upgrade):
        given = ["-b", *given]
    if len(given) > 1:
        raise PasswdError(f"Error: {given[0]} and {given[1]} cannot be used together.")


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 12 else 0
