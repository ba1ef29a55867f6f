"""Opens the files of the log. Imported before the broker listens, unlike the destinations that write to them."""

import errno
import os

FILE_MODE = 0o600               # topics and client ids are private; as in Mosquitto


def open_file(path: str) -> int:
    """Open a file for appending; create it if needed. Raises OSError. A pipe without a reader does not block, and
    symbolic links are not followed: other users who may write in the folder must not choose the broker's file."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
    if not os.environ.get("MOSQUITTO_UNSAFE_ALLOW_SYMLINKS"):
        flags |= os.O_NOFOLLOW
    try:
        fd = os.open(path, flags, FILE_MODE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link") from None
        raise
    os.set_blocking(fd, True)       # the writer thread may wait
    return fd
