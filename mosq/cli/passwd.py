"""Changes a password file for `mosq passwd`, with the messages and exit statuses of mosquitto_passwd.

Other lines stay unchanged, including comments and blank lines. The file is replaced in one step and keeps owner and
mode. If that is impossible (a file mounted into a container, a directory without write permission), it is written in
place. Uses the terminal only to prompt for a password; commands_passwd.py has the command line.
"""

import errno
import os
import sys
import tempfile

from mosq.auth.hashes import ITERATIONS, ITERATIONS_MAX, PBKDF2, argon2_advice, new_hash, read_hash

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

BYTES_MAX = 65535                       # longest user name and password [v5 1.5.4]
BLANKS = b" \t\r\n\v\f"
NEW_MODE = 0o600
# errors of replacing after which writing in place may succeed
IN_PLACE = (errno.EPERM, errno.EACCES, errno.EBUSY, errno.EXDEV)


class PasswdError(Exception):
    """Nothing was changed; the text is the reason, `status` the exit status."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


class Hashing:
    """The form of new hashes. Raises PasswdError for invalid iterations."""

    def __init__(self, kind: str = PBKDF2, iterations: int | None = None) -> None:
        if iterations is not None and iterations < 1:
            raise PasswdError("Error: Number of iterations must be > 0.")
        if iterations is not None and iterations > ITERATIONS_MAX:
            raise PasswdError(f"Error: Number of iterations must be <= {ITERATIONS_MAX}.")
        self.kind, self.iterations = kind, iterations or ITERATIONS

    def line(self, user: str, password: bytes) -> bytes:
        """Return a line of the password file. Raises PasswdError."""
        try:
            return f"{user}:{new_hash(self.kind, password, self.iterations)}\n".encode()
        except ImportError:
            raise PasswdError("Error: Unable to hash password: argon2id needs a package that is not installed: "
                              f"{argon2_advice()}") from None


def check_user(user: str) -> None:
    """Raise PasswdError for an invalid user name."""
    try:
        encoded = user.encode("utf-8")
    except UnicodeEncodeError:
        raise PasswdError("Error: Username must be UTF-8.") from None
    if len(encoded) > BYTES_MAX:
        raise PasswdError("Error: Username must be less than 65536 characters long.")
    if any(c < " " or "\x7f" <= c <= "\x9f" for c in user):
        raise PasswdError("Error: Username must not contain control characters.")
    if ":" in user:
        raise PasswdError("Error: Username must not contain the ':' character.")
    if not user.strip():
        raise PasswdError("Error: Username must not be empty.")
    if user != user.strip() or user.startswith("#"):
        raise PasswdError("Error: Username must not begin or end with a blank, nor begin with '#'.")


def check_password(password: bytes) -> None:
    """Raise PasswdError for an invalid password."""
    if len(password) > BYTES_MAX:
        raise PasswdError("Error: Password must be less than 65536 characters long.")
    if b"\0" in password:
        raise PasswdError("Error: Password must not contain a zero byte.")


def create(path: str, user: str, password: bytes, hashing: Hashing, print_line: "Callable[[str], None]") -> None:
    """Make a file with one user; `-` prints the line to standard output."""
    line = hashing.line(user, password)
    if path == "-":
        sys.stdout.write(line.decode())
        return
    print_line(f"Adding password for user {user}")
    _replace(path, line)


def update(path: str, user: str, password: bytes, hashing: Hashing, print_line: "Callable[[str], None]") -> None:
    """Set a user's password, or add the user. Raises PasswdError."""
    lines = _lines(path)
    places = [i for i, line in enumerate(lines) if _user_of(line) == user.encode()]
    new = hashing.line(user, password)
    if places:
        print_line(f"Updating password for user {user}")
        lines[places[0]] = new
    else:
        print_line(f"Adding password for user {user}")
        if lines and not lines[-1].endswith(b"\n"):
            lines[-1] += b"\n"
        lines.append(new)
    _replace(path, b"".join(lines))


def delete(path: str, user: str) -> None:
    """Delete a user. Raises PasswdError."""
    lines = _lines(path)
    kept = [line for line in lines if _user_of(line) != user.encode()]
    if len(kept) == len(lines):
        raise PasswdError(f"Warning: User {user} not found in password file.")
    _replace(path, b"".join(kept))


def hash_plain(path: str, hashing: Hashing, print_line: "Callable[[str], None]") -> None:
    """Hash all plain-text passwords of a file; existing hashes stay."""
    lines = _lines(path)
    hashed = 0
    for i, line in enumerate(lines):
        user = _user_of(line)
        if user is None:
            continue
        password = line.partition(b":")[2].strip(BLANKS)
        if _is_hash(password):
            hashed += 1
            continue
        try:
            name = user.decode("utf-8")
        except UnicodeDecodeError:
            raise PasswdError(f"Error: Corrupt password file at line {i + 1}.") from None
        lines[i] = hashing.line(name, password)
    if hashed:
        print_line(f"{hashed} passwords are hashed already and stay as they are.")
    _replace(path, b"".join(lines))


def _user_of(line: bytes) -> bytes | None:
    if line.startswith(b"#") or b":" not in line:
        return None
    return line.partition(b":")[0].strip(BLANKS)


def _is_hash(password: bytes) -> bool:
    try:
        read_hash(password.decode("ascii"))
    except ValueError:
        return False
    return True


def _lines(path: str) -> list[bytes]:
    """Return the lines with their line ends. Raises PasswdError for a line without a user, because rewriting the file
    might lose other users."""
    try:
        with open(path, "rb") as file:
            lines = file.read().splitlines(keepends=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise PasswdError(f"Error: Unable to open password file {path}. {reason}.") from None
    for number, line in enumerate(lines, start=1):
        if line.startswith(b"#") or not line.strip(BLANKS):
            continue
        user, _, password = line.partition(b":")
        if not user.strip(BLANKS) or not password.strip(BLANKS):
            raise PasswdError(f"Error: Corrupt password file at line {number}.")
    return lines


def _replace(path: str, content: bytes) -> None:
    path = os.path.realpath(path)
    try:
        status = os.stat(path)
    except FileNotFoundError:
        status = None
    except OSError as error:
        raise PasswdError(f"Error reading password file: {error.strerror}") from None
    try:
        try:
            _replace_at_once(path, content, status)
        except OSError as error:
            if status is None or error.errno not in IN_PLACE:
                raise
            _write_in_place(path, content)
    except OSError as error:
        raise PasswdError(f"Error: Unable to open file {path} for writing. {error.strerror}.") from None


def _replace_at_once(path: str, content: bytes, status: os.stat_result | None) -> None:
    folder = os.path.dirname(path)
    fd, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)[:100]}.", dir=folder)     # 0600
    try:
        with open(fd, "wb") as file:
            file.write(content)
            file.flush()
            if status is not None:
                if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(fd, status.st_uid, status.st_gid)
                os.fchmod(fd, status.st_mode & 0o7777)
            os.fsync(fd)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    folder_fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(folder_fd)
    finally:
        os.close(folder_fd)


def _write_in_place(path: str, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def prompt_password() -> bytes:
    """Prompt for the password twice, without echo, on standard input. Raises PasswdError."""
    if not sys.stdin.isatty():
        return _prompt_twice()
    import termios

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    quiet = termios.tcgetattr(fd)
    quiet[3] &= ~termios.ECHO
    # before the prompt, so that no typed character is shown or lost in between
    termios.tcsetattr(fd, termios.TCSAFLUSH, quiet)
    try:
        return _prompt_twice()
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _prompt_twice() -> bytes:
    first = _prompt_line("Password: ")
    second = _prompt_line("Reenter password: ")
    if first != second:
        raise PasswdError("Error: Passwords do not match.", 2)
    return first


def _prompt_line(prompt: str) -> bytes:
    sys.stdout.write(prompt)
    sys.stdout.flush()
    password = sys.stdin.buffer.readline(BYTES_MAX + 2).rstrip(b"\r\n")
    if not password:
        raise PasswdError("Error: Empty password.")
    sys.stdout.write("\n")
    return password
