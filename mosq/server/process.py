"""Changes the broker's own process: background, pid file, fewer rights. Knows Unix, not MQTT."""

import os
import time

FALLBACK_USER = "nobody"        # used if the default user does not exist, as in Mosquitto
DEFAULT_USER = "mosquitto"
STDERR_FD = 2
LOADED_LATER = ("mosq.log.destinations", "mosq.records", "mosq.server.systemd", "mosq.server.serving",
                "mosq.server.admin.topics", "select", "collections",
                "mosq.server.reload", "mosq.server.tree", "mosq.log.json_lines", "difflib", "_socket",
                "mosq._tls", "mosq.server.access", "mosq.auth.plugins", "mosq.auth.loading", "mosq.auth.sparkplug",
                "mosq.auth.native.sink",
                "argon2.low_level", "mosq.auth.dynsec.directory", "mosq.auth.dynsec.commands",
                "mosq.server.admin.broker", "mosq.server.admin.inspect", "mosq.server.admin.traces",
                "mosq.server.admin.hot",
                "mosq.tools.db.mosquitto_save", "mosq.server.saving", "mosq.server.unkept", "mosq.config.security",
                "mosq.server.upgrade.leaving", "mosq.stat_names", "json", "array",
                "mosq.server.bridge.bridges", "mosq.server.admin.bridges",
                "encodings.idna")
LOADED_FOR_TAKE_OVER = ("mosq.tools.db.mosquitto_import", "mosq.tools.db.mosquitto_sqlite", "mosq.tools.db.store",
                        "mosq.tools.db.divide", "mosq.config.security", "select", "shutil", "json")
# Signals need these. A package replaces the files while the process runs, and a module of the new version does not fit
# to the others.
LOADED_WHILE_SERVING = ("mosq.server.upgrade.leaving", "mosq.server.reload", "mosq.server.tree", "mosq.stat_names")
LOADED_FOR_SAVING = ("mosq.tools.db.mosquitto_save",)
# The HTTP API is missing in LOADED_LATER because it takes 200 ms: if only root can read the Python installation, the
# first HTTP listener needs a restart.
MOST_ID = 2**31 - 1
FIRST_THREADS = 2               # the data plane's loop and the log's writer
THREADS_END_S = 0.1             # a thread's end takes about 0.1 ms on an idle machine
ARENA_MAKING_BYTES = 4096       # Python asks the C library for blocks of this size
MOST_DESCRIPTORS = 1 << 17      # the kernel's table for this number takes 1 MiB
ARG_START, ARG_END = 47, 48             # fields of /proc/self/stat, from 0 (proc(5))


def open_standard_descriptors() -> None:
    """Open /dev/null on each of the descriptors 0 to 2 that is closed. Without this a socket gets the number, and a
    client gets what is written to standard error."""
    try:
        while (fd := os.open(os.devnull, os.O_RDWR)) <= STDERR_FD:
            os.set_inheritable(fd, True)
        os.close(fd)
    except OSError:
        pass                    # no /dev/null, as in some chroots


class Background:
    """Moves the process to the background. The command waits until the broker listens and then returns the broker's
    exit status."""

    def __init__(self) -> None:
        read_fd, self._ready_fd = os.pipe()
        pid = os.fork()
        if pid:
            os.close(self._ready_fd)
            os._exit(0 if os.read(read_fd, 1) else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os.close(read_fd)
        os.setsid()

    def ready(self) -> None:
        """Report that the broker runs: detach from the terminal and end the waiting command."""
        null_fd = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null_fd, fd)
        if null_fd > 2:
            os.close(null_fd)
        try:
            os.write(self._ready_fd, b"1")
        except BrokenPipeError:
            pass                # a signal has ended the waiting command
        os.close(self._ready_fd)


def room_for_descriptors(most: int = MOST_DESCRIPTORS) -> int:
    """Raise the soft limit of descriptors to the hard limit and make the kernel grow its descriptor table now; return
    the limit.

    Call this while the process has one thread. With two threads, each doubling of the table (at 256, 512, ...
    descriptors) makes the accept that triggers it wait for an RCU grace period: 7 to 15 ms in which the loop stands
    still.
    """
    import fcntl
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, most)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    except (OSError, ValueError):
        pass                    # keep the current limit
    try:
        os.close(fcntl.fcntl(STDERR_FD, fcntl.F_DUPFD_CLOEXEC, min(soft, most) - 1))
    except OSError:
        pass                    # no stderr: the table grows later, one doubling at a time
    return soft


def map_threads(count: int = FIRST_THREADS) -> None:
    """Let the C library map the stacks and the memory arenas of some threads now: 72 MiB of addresses for each. It
    keeps them for the next threads. So limits and alarms that look at the size of the process see no growth when the
    broker already listens. Waits up to 0.1 s for the end of these threads: a thread that lives keeps its stack."""
    import _thread

    before = _threads()
    began = [_thread.allocate_lock() for _ in range(count)]
    gate = _thread.allocate_lock()          # all threads live at the same time, so each has its own stack and arena

    def run(mine: "_thread.LockType") -> None:
        bytearray(ARENA_MAKING_BYTES)
        mine.release()
        with gate:
            pass

    with gate:
        for lock in began:
            lock.acquire()
            _thread.start_new_thread(run, (lock,))
        for lock in began:
            lock.acquire()
    latest = time.monotonic() + THREADS_END_S
    while _threads() > before and time.monotonic() < latest:
        time.sleep(0.0001)


def _threads() -> int:
    """Return the number of the process's threads; 0 without /proc."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


def write_pid_file(path: str) -> None:
    """Write the process id. The file is never empty. Raises OSError. Symbolic links are not followed, because other
    users may write in the folder while the process still has root's rights."""
    number = b"%d" % os.getpid()
    how = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    new = f"{path}.new"
    try:
        fd = os.open(path, how, 0o644)
    except PermissionError:             # a file that root has written, in a folder of the broker's user
        fd = os.open(new, how | os.O_EXCL, 0o644)
    else:
        new = ""
    try:
        os.write(fd, number)
        os.ftruncate(fd, len(number))
    finally:
        os.close(fd)
    if new:
        os.rename(new, path)


def remove_pid_file(path: str) -> None:
    """Delete the pid file; errors are ignored."""
    # the broker's user may not have the right to; a stale number does no harm
    try:
        os.unlink(path)
    except OSError:
        pass


class Account:
    """The account whose rights a broker started by root takes."""

    def __init__(self, name: str, uid: int, gid: int, groups: list[int]) -> None:
        self.name, self.uid, self.gid, self.groups = name, uid, gid, groups
        self.instead_of: str | None = None      # name of the default user if it does not exist here


def find_account(user: str) -> Account | None:
    """Return the account named by PUID and PGID of the environment (containers), else by `user`. None: keep the current
    user. Raises LookupError if there is no such user, ValueError if a number is invalid."""
    if os.geteuid() != 0 or os.environ.get("SNAP_NAME") == "mosquitto":
        return None
    uid, gid = _number("PUID"), _number("PGID")
    if uid is not None or gid is not None:
        # 0 changes nothing, as in Mosquitto
        return Account(_name_of(uid or 0), uid or 0, gid or os.getgid(), [gid] if gid else os.getgroups())
    if user == "root":
        return None
    import pwd

    for name in [user, FALLBACK_USER] if user == DEFAULT_USER else [user]:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        found = Account(name, entry.pw_uid, entry.pw_gid, os.getgrouplist(name, entry.pw_gid))
        found.instead_of = user if name != user else None
        return found
    raise LookupError(f"Unable to drop privileges to '{user}' because this user does not exist; expected `user NAME` "
                      f"of this system, or `user root`.")


def _number(variable: str) -> int | None:
    text = os.environ.get(variable)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) > MOST_ID:
        raise ValueError(f"{variable} not a valid ID '{text[:40]}'; expected a number from 0 to {MOST_ID}.")
    return int(text)


def _name_of(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"id {uid}"


def running_as(account: Account | None) -> str:
    """Return the user name for the log."""
    return account.name if account is not None else _name_of(os.geteuid())


class Acting:
    """`with Acting(account):` opens files with the rights that the broker will have, so that it can open them again
    later."""

    def __init__(self, account: Account | None) -> None:
        self.account = account

    def __enter__(self) -> None:
        if self.account is not None:
            self.before = os.getegid(), os.getgroups()
            os.setgroups(self.account.groups)
            os.setegid(self.account.gid)
            os.seteuid(self.account.uid)

    def __exit__(self, *exception: object) -> None:
        if self.account is not None:
            os.seteuid(0)
            os.setegid(self.before[0])
            os.setgroups(self.before[1])


def can_load(account: Account) -> bool:
    """Return whether an account may read Python and mosq, of which `mosq upgrade` starts the new process."""
    with Acting(account):
        return os.access(os.__file__, os.R_OK, effective_ids=True) and os.access(__file__, os.R_OK, effective_ids=True)


def load_now(names: tuple[str, ...] = LOADED_LATER) -> None:
    """Import the modules that are otherwise imported later, when the process may no longer have the right to read
    them."""
    for name in names:
        try:
            __import__(name)
        except (ImportError, OSError):
            pass                # an optional module, or one that cannot be read now: its first use reports the error


def load_for(account: Account) -> None:
    """If only root can read the Python installation, import now the modules that are otherwise imported later."""
    if not can_load(account):
        load_now()


def become(account: Account, files: "list[str] | tuple[()]" = ()) -> None:
    """Give up root's rights for good and give the `files` to the new owner, after `load_for`. Raises OSError if the
    system refuses."""
    load_for(account)
    for path in files:
        os.chown(path, account.uid, account.gid, follow_symlinks=False)  # other users may write in the folder
    os.setgroups(account.groups)
    os.setgid(account.gid)
    os.setuid(account.uid)


def set_umask() -> None:
    """Set the umask from UMASK_SET of the environment, in octal. Raises ValueError."""
    text = os.environ.get("UMASK_SET")
    if text is None:
        return
    try:
        mask = int(text, 8)
    except ValueError:
        raise ValueError("UMASK_SET environment variable not a valid octal number.") from None
    if not 0 <= mask <= 0o777:
        raise ValueError("UMASK_SET environment variable out of range.")
    os.umask(mask)


def name_process(name: str, arguments: bool) -> None:
    """Give this process a name of at most 15 bytes, as `ps -e` shows it; with `arguments`, also in place of the command
    line, as `ps -ef` shows it."""
    try:
        with open("/proc/self/comm", "w") as file:
            file.write(name)
        if arguments:
            _overwrite_arguments(name.encode())
    except (OSError, ValueError):
        pass                            # a name is of use to people only


def _overwrite_arguments(name: bytes) -> None:
    """Write over the memory of the command line, which the system shows. Each process has its own copy after a fork."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()        # from the third field on
    start, end = int(fields[ARG_START - 2]), int(fields[ARG_END - 2])
    if not 0 < start < end:
        return
    with open("/proc/self/mem", "r+b", 0) as memory:
        memory.seek(start)
        memory.write(name[:end - start - 1].ljust(end - start, b"\0"))
