"""`mosq passwd` on the command line: the options of mosquitto_passwd, in its order, with its exit statuses."""

import os

import click

from mosq.auth.hashes import KINDS, PBKDF2

EXIT_OK, EXIT_FAILED = 0, 1

EPILOG = """\b
Examples:
  mosq passwd -c /etc/mosquitto/passwd ann          a new file; asks for the password
  mosq passwd /etc/mosquitto/passwd ben             another user, or a new password
  mosq passwd -b passwd ben s3cret                  without asking; others can see it in the list of processes
  mosq passwd -D passwd ben
  mosq passwd -H argon2id passwd ann                dearer to guess; Mosquitto reads it since 2.1
  mosq passwd -U passwd                             hash a file of `user:password` lines

\b
Exit status:
  0  done
  1  not done; the file is as it was
  2  not done: the two passwords differ
"""


class PasswdCommand(click.Command):
    """Mistakes in the command line end with status 1, as mosquitto_passwd's."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(context, args)
        except click.UsageError as error:
            click.echo(f"Error: {error.format_message()}\n{context.get_usage()}", err=True)
            context.exit(EXIT_FAILED)


@click.command(cls=PasswdCommand, epilog=EPILOG, no_args_is_help=False,
               context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False})
@click.option("-H", "kind", metavar="|".join(KINDS), default=PBKDF2, show_default=True, help="How to hash.")
@click.option("-I", "iterations", metavar="N", help="Iterations of sha512-pbkdf2.  [default: 1000]")
@click.option("-b", "batch", is_flag=True, help="The password is on the command line.")
@click.option("-c", "new", is_flag=True, help="Make a new file; what was in it is gone. FILE -: to standard output.")
@click.option("-D", "remove", is_flag=True, help="Delete the user.")
@click.option("-U", "upgrade", is_flag=True, help="Hash all passwords of a file that are plain text.")
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
        if not new and not os.path.exists(path):     # before somebody types a password for nothing
            raise file.PasswdError(f"Error: Unable to open password file {path}. {os.strerror(2)}.")
        password = os.fsencode(words[2]) if batch else file.ask_password()
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
