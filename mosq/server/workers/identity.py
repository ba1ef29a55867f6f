"""The names of processes: what `ps` shows for a worker. Does nothing where /proc does not allow it."""

ARG_START, ARG_END = 47, 48             # fields of /proc/self/stat, from 0 (proc(5))


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
