"""Examine what the broker's user may do with the files of a configuration, for `mosq doctor` and `--test-config`.

A broker that root starts reads most files as root and then becomes its user, so a file of root works until the next
SIGHUP. Run by root, this module examines all files with the rights of that user; run by another user, with those of
that one. It changes nothing.
"""

import grp
import os
import stat

from mosq.auth.dynsec.check import why_not_made
from mosq.config.errors import ConfigError, Origin
from mosq.config.files import FOLDER, Pointer, not_reloadable
from mosq.config.model import Config
from mosq.config.plugin import DYNAMIC_SECURITY, all_plugins
from mosq.server import process
from mosq.server.handover import has_segments, mosquitto_file, sqlite_database
from mosq.server.process import Account, Acting, can_load, find_account, running_as
from mosq.server.storage import store_directory
from mosq.tools.doctor.takeover import has_workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NO_START = "The broker will not start with it."


class Trouble:
    """Something that the broker's user cannot do. `stops`: the broker does not start because of it."""

    __slots__ = ("stops", "text", "origin", "advice")

    def __init__(self, stops: bool, text: str, origin: "Origin | None", advice: str) -> None:
        self.stops, self.text, self.origin = stops, text, origin
        self.advice = f"{NO_START} {advice}" if stops else advice


def broker_account(config: Config) -> Account | None:
    """Return the account that a broker started now would take; None: the present one, also if there is no such
    account."""
    try:
        return find_account(config.user)
    except (LookupError, ValueError):
        return None


def troubles(config: Config) -> list[Trouble]:
    """Return what the broker's user cannot do with the files of this configuration."""
    try:
        account = find_account(config.user)
    except (LookupError, ValueError) as error:
        text, _, expected = str(error).partition("; expected ")
        return [Trouble(True, text, config.origins.get("user"), f"Expected {expected}")]
    found = [*_pid_file(config, account)]       # root writes it before it becomes the user
    if account is not None and not can_load(account):
        found.append(_not_loadable(account))
    with Acting(account):
        found += [*_logs(config, account), *_directory(config, account), *_store(config, account)]
        if account is not None:
            found += [*_not_reloadable(config, account), *_sources(config, account)]
    return found


def _not_loadable(account: Account) -> Trouble:
    places = f"{os.path.dirname(os.__file__)} or {os.path.dirname(os.path.dirname(process.__file__))}"
    return Trouble(False, f"the user {account.name} cannot read Python or mosq ({places}), so `mosq upgrade` fails, "
                   "and each start loads more modules than it needs", None,
                   "Install both where all users can read them, not below a closed folder such as /root.")


def closing_advice(path: str, config: Config) -> str:
    """Return the commands that close a secret file to other users and leave it to the broker's user."""
    account = broker_account(config)
    close = f"chmod 0600 {path}"
    try:
        if os.stat(path).st_uid == (os.geteuid() if account is None else account.uid):
            return close
    except OSError:
        pass
    return f"chown {config.user if account is None else _owner(account)}: {path} && {close}"


def store_advice(config: Config) -> str:
    """Return how the broker's user gets the folder of the store, if root runs the command."""
    account, store = broker_account(config), store_directory(config)
    if account is None or store is None:
        return ""
    folder = store if os.path.isdir(store) else os.path.dirname(os.path.abspath(store))
    return f"install -d -o {_owner(account)} {folder}"


def _owner(account: Account) -> str:
    return str(account.uid) if account.name.startswith("id ") else account.name


def _group(account: Account) -> str:
    try:
        return grp.getgrgid(account.gid).gr_name
    except KeyError:
        return str(account.gid)


def _why_not_written(path: str) -> str | None:
    """Return why the present rights do not allow to write a file of the broker; None if they do."""
    if not os.path.lexists(path):
        return why_not_made(path)
    if os.path.islink(path):
        return "it is a symbolic link"
    if os.path.isdir(path):
        return "Is a directory"
    return None if os.access(path, os.W_OK, effective_ids=True) else "Permission denied"


def _folder_advice(path: str, account: Account | None) -> str:
    folder = os.path.dirname(os.path.abspath(path))
    if account is None:
        return f"Expected a folder {folder} in which {running_as(None)} may write."
    return f"install -d -o {_owner(account)} {folder}, or choose a folder of that user."


def _pid_file(config: Config, account: Account | None) -> "Iterator[Trouble]":
    why = None if config.pid_file is None else _why_not_written(config.pid_file)
    if why is not None and config.pid_file is not None:
        yield Trouble(True, f"pid_file {config.pid_file} cannot be written ({why})", config.origins.get("pid_file"),
                      f"{_folder_advice(config.pid_file, account)} A unit of systemd makes a folder below /run with "
                      "RuntimeDirectory=.")


def _logs(config: Config, account: Account | None) -> "Iterator[Trouble]":
    for dest in config.log_dest:
        path = dest.removeprefix("file ")
        why = None if path == dest else _why_not_written(path)
        if why == "it is a symbolic link" and os.environ.get("MOSQUITTO_UNSAFE_ALLOW_SYMLINKS"):
            why = None
        if why is not None:
            yield Trouble(False, f"log_dest file {path} cannot be written by the user {running_as(account)} ({why}): "
                          "its lines are lost, and a reload is refused", config.origins.get("log_dest"),
                          _folder_advice(path, account) if why != "Permission denied" or not os.path.exists(path)
                          else _give(path, account))


def _give(path: str, account: Account | None) -> str:
    if account is None:
        return f"Expected a file of the user {running_as(None)}."
    return f"chown {_owner(account)}: {path}"


def _directory(config: Config, account: Account | None) -> "Iterator[Trouble]":
    """Examine the file of dynamic security: the broker reads it as its user, and replaces it at each change. A node of
    a cluster reads it only."""
    user = running_as(account)
    for plugin in all_plugins(config):
        if plugin.kind != DYNAMIC_SECURITY:
            continue
        try:
            path, _ = plugin.directory_files()
        except ConfigError:                     # another finding reports it
            continue
        closed = _closed_folder(path)
        if closed is not None:
            yield Trouble(True, f"dynamic security file {path} cannot be read by the user {user}: {closed} is closed "
                          "to that user", plugin.origin, "Move the file to a folder of that user.")
        elif os.path.lexists(path):
            if not os.access(path, os.R_OK, effective_ids=True):
                yield Trouble(True, f"dynamic security file {path} cannot be read by the user {user}", plugin.origin,
                              _give(path, account))
            elif config.cluster is None and why_not_made(path) is not None:
                yield Trouble(False, f"dynamic security file {path}: the user {user} cannot write in its folder, so "
                              "commands cannot change it", plugin.origin,
                              _give(os.path.dirname(os.path.abspath(path)), account))


def _store(config: Config, account: Account | None) -> "Iterator[Trouble]":
    """Examine the files of the store and those that the start takes over. mosq/server/unkept.py examines the folder."""
    store = store_directory(config)
    if store is None or _closed_folder(store) is not None:
        return
    origin, user = config.origins.get("persistence_location") or config.origins.get("persistence"), running_as(account)
    try:
        is_first = not has_segments(store) and not has_workers(store)
    except OSError as error:
        yield Trouble(True, f"{store} cannot be read by the user {user} ({error.strerror})", origin,
                      _give(f"-R {store}", account))
        return
    if is_first:
        for path in (mosquitto_file(config), sqlite_database(config)):
            if path is not None and os.path.exists(path) and not os.access(path, os.R_OK, effective_ids=True):
                yield Trouble(True, f"{path} cannot be read by the user {user}, so it cannot be taken over", origin,
                              _give(path, account))
    for folder, _, names in os.walk(store):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            if not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
                yield Trouble(True, f"{path} cannot be written by the user {user}", origin,
                              _give(f"-R {store}", account))
                return


def _closed_folder(path: str) -> str | None:
    """Return the first folder above the path that the present rights do not allow to enter; None if there is none."""
    folder = os.path.dirname(os.path.abspath(path))
    above = [folder]
    while folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
        above.append(folder)
    for one in reversed(above):
        try:
            if stat.S_ISDIR(os.stat(one).st_mode) and not os.access(one, os.X_OK, effective_ids=True):
                return one
        except OSError:
            return None
    return None


def _not_reloadable(config: Config, account: Account) -> "Iterator[Trouble]":
    for pointer in not_reloadable(config):
        closed = _closed_folder(pointer.path)
        if closed is not None:
            advice = (f"{closed} is closed to that user: give it a copy in another folder, with "
                      f"install -o {_owner(account)} -m 0600 (docs/tls.md).")
        elif pointer.kind == FOLDER:
            advice = f"chgrp {_group(account)} {pointer.path} && chmod g+rx {pointer.path}"
        else:
            advice = f"{_give(pointer.path, account)}{_readable_by_owner(pointer)}"
        yield Trouble(False, f"{pointer.option} {pointer.path} cannot be read by the user {account.name}: root reads "
                      "it at the start, and each reload fails", pointer.origin, advice)


def _readable_by_owner(pointer: Pointer) -> str:
    return "" if os.stat(pointer.path).st_mode & stat.S_IRUSR else f" && chmod u+r {pointer.path}"


def _sources(config: Config, account: Account) -> "Iterator[Trouble]":
    """Examine the configuration itself: the file, the folders of include_dir and their files."""
    reported = set()
    for path, origin in config.sources:
        closed = _closed_folder(path)
        if closed is not None and closed in reported:
            continue
        need = "g+rx" if os.path.isdir(path) else "g+r"
        if closed is None and os.access(path, os.R_OK | (os.X_OK if need == "g+rx" else 0), effective_ids=True):
            continue
        reported.add(os.path.abspath(path) if closed is None else closed)
        advice = (f"chgrp {_group(account)} {path} && chmod {need} {path}" if closed is None else
                  f"{closed} is closed to that user: move the configuration to a folder such as /etc/mosquitto.")
        yield Trouble(False, f"the configuration {path} cannot be read by the user {account.name}: root reads it at "
                      "the start, and each reload fails", origin, advice)
