"""What a broker does to its own process: background, pid file, fewer rights. Knows Unix, not MQTT."""

import os

FALLBACK_USER = "nobody"        # where the default user does not exist, as in Mosquitto
DEFAULT_USER = "mosquitto"
STDERR_FD = 2
MOST_DESCRIPTORS = 1 << 17      # the kernel's table for so many takes 1 MiB


class Background:
    """Moves the process to the background. The caller of the command waits until the broker listens, and gets its exit
    status."""

    def __init__(self) -> None:
        read_fd, self._ready_fd = os.pipe()
        pid = os.fork()
        if pid:
            os.close(self._ready_fd)
            os._exit(0 if os.read(read_fd, 1) else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os.close(read_fd)
        os.setsid()

    def ready(self) -> None:
        """The broker runs: lets go of the terminal and of whoever waits."""
        null_fd = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null_fd, fd)
        if null_fd > 2:
            os.close(null_fd)
        os.write(self._ready_fd, b"1")
        os.close(self._ready_fd)


def room_for_descriptors(most: int = MOST_DESCRIPTORS) -> int:
    """Raises the soft limit of descriptors to the hard one, and has the kernel make its table for them now; returns
    the limit.

    To be called while there is one thread: with two, each doubling of the table (at 256, 512, ... descriptors) makes
    the accept that meets it wait for an RCU grace period, 7 to 15 ms in which the loop stands still."""
    import fcntl
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, most)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    except (OSError, ValueError):
        pass                    # what there is has to do
    try:
        os.close(fcntl.fcntl(STDERR_FD, fcntl.F_DUPFD_CLOEXEC, min(soft, most) - 1))
    except OSError:
        pass                    # no stderr: then later, one doubling at a time
    return soft


def write_pid_file(path: str) -> None:
    """Raises OSError. A symbolic link is not followed: the folder may be writable by others while we are root."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, b"%d" % os.getpid())
    finally:
        os.close(fd)


def remove_pid_file(path: str) -> None:
    # the user that we became may not be allowed to: a stale number is no harm
    try:
        os.unlink(path)
    except OSError:
        pass


def become(user: str, files: "list[str] | tuple[()]" = ()) -> str | None:
    """Gives up root's rights for those of `user`, who gets the `files`; returns whom it became, None if nothing was to
    do. Raises LookupError when there is no such user, OSError when the system refuses."""
    if os.geteuid() != 0 or user == "root":
        return None
    import pwd

    names = [user, FALLBACK_USER] if user == DEFAULT_USER else [user]
    for name in names:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        for path in files:
            os.chown(path, entry.pw_uid, entry.pw_gid)
        os.initgroups(name, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
        return name
    raise LookupError(f"Invalid user '{user}': there is none of that name; expected `user NAME` of this system, or "
                      f"`user root`")
