"""Examine a mosquitto.conf for `mosq doctor`: what stays the same with mosq, what is better, and what needs attention.

This module reads the file as mosq does, and the files that it names. It changes nothing, starts nothing and shows no
secret.
"""

import os

from mosq.auth.dynsec.check import readable_directory
from mosq.auth.loading import unloadable
from mosq.auth.native.check import unloadable_native
from mosq.config.acl import AclRule
from mosq.config.errors import ConfigError
from mosq.config.files import FILE, NO_AUTHORITIES, Pointer, pointers, readable_acls
from mosq.config.model import Config, Listener
from mosq.config.options import BY_KEYWORD
from mosq.config.parser import load_config
from mosq.config.plugin import (
    ACL_FILE,
    DYNAMIC_SECURITY,
    NATIVE,
    PERSIST_SQLITE,
    SPARKPLUG_AWARE,
    all_plugins,
    sqlite_place,
)
from mosq.server.process import Acting
from mosq.server.storage import store_directory
from mosq.server.unkept import must_stop, unkept_line, unusable
from mosq.tools.doctor.rights import NO_START, broker_account, closing_advice, store_advice, troubles
from mosq.tools.doctor.takeover import takeover_findings
from mosq.tools.doctor.tls import tls_findings
from mosq.tools.extras import missing_packages

SAME, BETTER, ATTENTION = "same", "better", "attention"
WILL_NOT_START = "broker will not start"
LOOPBACK = ("127.", "::1", "localhost")
PASSWORD_BYTES_MAX = 64 << 20
WORKER_BYTES = 18_000_000         # of a worker without clients, with a store
WORKER_BYTES_MIN = WORKER_BYTES + (16 << 20)     # START_ROOM_BYTES of cext/broker/core/resident.pyx
DIRECTORY = "plugin_opt_config_file"     # the file of dynamic security
NO_CLIENT = "no client"
NO_LOGIN = (ACL_FILE, PERSIST_SQLITE, SPARKPLUG_AWARE)   # plugins that check no password


class Finding:
    """Hold one line of the report."""

    __slots__ = ("level", "text", "origin", "advice")

    def __init__(self, level: str, text: str, origin: object = None, advice: str = "") -> None:
        self.level, self.text, self.advice = level, text, advice
        self.origin = None if origin is None else str(origin)

    @property
    def stops(self) -> bool:
        """True if the broker does not start because of it. The words decide, so they agree with the exit status."""
        return self.level == ATTENTION and WILL_NOT_START in f"{self.text} {self.advice}".lower()


def examine(path: str) -> tuple[Config, list[Finding]]:
    """Return the configuration and the findings. Raises ConfigError if the file cannot be read as a configuration."""
    config = load_config(path)
    acls: dict[str, list[AclRule]] = {}
    found = []
    try:
        acls = readable_acls(config)
        with Acting(broker_account(config)):
            readable_directory(config)
    except ConfigError as error:
        found.append(Finding(ATTENTION, error.text, error.origin, NO_START))
    found += [*_store(config), *_same(config), *_better(config), *_workers(config), *_ignored(config),
              *_plugins(config), *_files(config), *_public_listeners(config), *_passwords(config), *_acls(acls)]
    found += [Finding(ATTENTION, text.partition(". ")[0], origin, f"{NO_START} {text.partition('. ')[2]}")
              for text, origin in missing_packages(config)]
    found += [Finding(ATTENTION, one.text, one.origin, one.advice) for one in troubles(config)]
    found += [Finding(ATTENTION, text, origin, advice) for text, origin, advice in tls_findings(config)]
    return config, found


def _store(config: Config) -> list[Finding]:
    with Acting(broker_account(config)):
        wrong, unkept = must_stop(config), unusable(config)
        if wrong is None and unkept is not None and config.cluster_local > 1 and not os.path.isdir(
                store_directory(config) or ""):
            wrong = f"The store cannot be made ({unkept}), and workers need one."
    origin = config.origins.get("persistence_location") or config.origins.get("persistence")
    if wrong is not None:
        return [Finding(ATTENTION, wrong, origin, f"{NO_START} {store_advice(config)}".strip())]
    if unkept is not None:
        return [Finding(ATTENTION, unkept_line(config, unkept), origin, store_advice(config))]
    return [Finding(ATTENTION if wrong else BETTER, text, origin, advice)
            for wrong, text, advice in takeover_findings(config)]


# ---- what stays

def _same(config: Config) -> list[Finding]:
    options = [name for owner in (config.origins, *(one.origins for one in config.listeners)) for name in owner]
    known = [BY_KEYWORD[name] for name in options]
    n = sum(not option.ignored and not option.own for option in known)
    found = [Finding(SAME, f"{n} option{' has' if n == 1 else 's have'} the same meaning as in Mosquitto")] if n else []
    for listener in config.listeners:
        tls = " over TLS" if listener.tls else ""
        found.append(Finding(SAME, f"listener {listener.where}: {listener.protocol}{tls}, lets in "
                                   f"{_admitted(config, listener)}", listener.origin))
    return found


def _admitted(config: Config, listener: Listener) -> str:
    """Return which clients the listener lets in, for the report."""
    natives = _native_names(config, listener)
    has_password = bool(config.security_of(listener, "password_file")
                        or any(plugin.kind not in (*NO_LOGIN, NATIVE) for plugin in config.plugins_of(listener)))
    is_named = bool(listener.tls and (listener.use_identity_as_username or listener.use_subject_as_username))
    needs = []
    if listener.psk_hint:
        needs.append("a pre-shared key")
    elif listener.tls and (listener.require_certificate or is_named):
        needs.append("a certificate")
    others = _by_the_broker(needs, has_password and not is_named, config.allows_anonymous(listener), is_named)
    if not natives:
        return others
    having = f" with {' and '.join(needs)}" if needs else ""
    rest = "" if others == NO_CLIENT else f", and where it leaves the decision to the broker, {others}"
    return f"the clients{having} that {natives} allows{rest}"


def _by_the_broker(needs: list[str], has_password: bool, is_open: bool, is_named: bool) -> str:
    """Return which clients a listener lets in if no native plugin decides. `needs`: what all of them need; `is_named`:
    certificates name them."""
    if is_open and has_password:
        return " and ".join(["clients with a password, and those without a user name",
                             *(f"all of them need {need}" for need in needs)])
    if has_password:
        needs = [*needs, "a password"]
    elif not is_open and not is_named:
        return NO_CLIENT
    return f"clients with {' and '.join(needs)}" if needs else "all clients"


def _native_names(config: Config, listener: Listener) -> str:
    """Return the native plugins of a listener that may be asked about logins, for the report; "": none. Only their
    initialization decides whether they are."""
    names = [plugin.name or os.path.basename(plugin.path) for plugin in config.plugins_of(listener)
             if plugin.kind == NATIVE and not plugin.is_sqlite]
    return f"the plugin {' or '.join(names)}" if names else ""


def _better(config: Config) -> list[Finding]:
    listeners = "also listeners, " if config.cluster_local == 1 else ""      # workers share them
    found = [f"SIGHUP applies all options that can change, {listeners}or none: after an error in the file "
             "the old ones stay in force"]
    if any(listener.certfile for listener in config.listeners):
        found.append("SIGHUP reads certificates, authorities and revocations again")
    if any(config.security_of(listener, "password_file") for listener in config.listeners):
        found.append("passwords are hashed beside the loop, with a cache: many logins at once do not delay messages")
    if any(config.security_of(listener, "acl_file") for listener in config.listeners):
        found.append("the acl_file is compiled; a denied publish or subscribe is logged at level notice")
    if "max_queued_messages" in config.origins and config.max_queued_messages == 0:
        found.append("max_queued_messages 0 does not let one slow client take all memory: max_output_bytes bounds it")
    if config.set_tcp_nodelay and "set_tcp_nodelay" not in config.origins:
        found.append("small messages are sent at once (set_tcp_nodelay is on by default)")
    return [Finding(BETTER, text) for text in found]


def _workers(config: Config) -> list[Finding]:
    """Return what is to know about several workers on this machine."""
    workers, cores = config.cluster_local, len(os.sched_getaffinity(0))
    if workers == 1:
        return []
    origin, memory_origin = config.origins.get("cluster_local"), config.origins.get("memory_limit")
    found = [Finding(BETTER, f"cluster_local {workers}, which Mosquitto does not have: {workers} processes serve the "
                             "clients. A new version needs a restart, because `mosq upgrade` does not know workers",
                     origin)]
    if workers > cores:
        found.append(Finding(ATTENTION, f"cluster_local {workers}: there are more workers than processor cores "
                                        f"({cores}). Each one costs memory and links to all others", origin,
                             f"Write cluster_local {cores} or less."))
    part = config.memory_limit // workers
    if 0 < part < WORKER_BYTES_MIN:
        found.append(Finding(ATTENTION, f"memory_limit {config.memory_limit} is divided: each of {workers} workers "
                                        f"gets {part / 1e6:.0f} MB, and has about {WORKER_BYTES / 1e6:.0f} MB before "
                                        "its first client. So only messages, connections and subscriptions count",
                             memory_origin,
                             f"To limit the whole process, write at least memory_limit {workers * WORKER_BYTES_MIN}."))
    return found


# ---- what needs attention

def _ignored(config: Config) -> list[Finding]:
    found = [Finding(ATTENTION, warning) for warning in config.warnings]
    options = [(name, origin) for name, origin in config.origins.items()]
    options += [(name, origin) for listener in config.listeners for name, origin in listener.origins.items()]
    seen = set()
    for name, origin in options:
        option = BY_KEYWORD[name]
        if (option.deprecated is not None or option.deprecated_by) and name not in seen:
            seen.add(name)
            instead = f"Better: {option.deprecated_by}." if option.deprecated_by else ""
            found.append(Finding(ATTENTION, f"'{name}' works and is deprecated by Mosquitto", origin, instead))
    return found


def _plugins(config: Config) -> list[Finding]:
    found, account = [], broker_account(config)
    for plugin in all_plugins(config):
        if plugin.on_loop and plugin.kind != NATIVE:
            found.append(Finding(ATTENTION, f"plugin_thread has no effect on plugin {plugin.path}, which is not in C",
                                 plugin.origin, "Remove the line."))
        why = unloadable(plugin) or unloadable_native(plugin, account)
        if why is not None:
            text, expected, advice = why.partition(". Expected ")
            found.append(Finding(ATTENTION, text.removesuffix("."), plugin.origin,
                                 f"{NO_START}{expected.removeprefix('.')}{advice}"))
        elif plugin.kind == NATIVE:
            thread = "on the broker's loop" if plugin.on_loop else "in a thread of its own"
            found.append(Finding(SAME, f"native plugin {plugin.path}: its library loads, and all names that it needs "
                                       f"exist. It is called {thread} (docs/plugins-c.md)", plugin.origin))
        elif plugin.kind == PERSIST_SQLITE and sqlite_place(config, plugin):
            found.append(Finding(BETTER, "persist-sqlite: mosq keeps durable sessions in a store of its own (see "
                                       "persistence, durability)", plugin.origin))
    return found


def _files(config: Config) -> list[Finding]:
    found = []
    for pointer in [*pointers(config), *_directories(config)]:
        problem = pointer.problem()
        if problem is not None and pointer.option == DIRECTORY:
            continue                    # it may not exist yet; rights.py reports one that cannot be read
        if problem is not None:
            found.append(Finding(ATTENTION, f"{pointer.option} {pointer.path} {problem}", pointer.origin,
                                 "The broker will not start without it." if pointer.is_needed else
                                 f"Until it is there, {NO_AUTHORITIES}."))
        elif pointer.open_to_all:
            found.append(Finding(ATTENTION, f"{pointer.option} {pointer.path} can be read by all users of this machine",
                                 pointer.origin, closing_advice(pointer.path, config)))
    return found


def _directories(config: Config) -> list[Pointer]:
    """Return the files of dynamic security."""
    return [Pointer(DIRECTORY, plugin.option("config_file") or "", FILE, plugin.origin)
            for plugin in all_plugins(config) if plugin.kind == DYNAMIC_SECURITY]


def is_public(listener: Listener) -> bool:
    """Return whether other machines can reach the listener."""
    return listener.path is None and not (listener.host or "").startswith(LOOPBACK)


def _public_listeners(config: Config) -> list[Finding]:
    found = []
    for listener in config.listeners:
        if not is_public(listener):
            continue
        origin = listener.origins.get("listener_allow_anonymous") or config.origin_of(listener, "allow_anonymous")
        password_file = config.security_of(listener, "password_file")
        if (config.allows_anonymous(listener) and not listener.require_certificate and not listener.psk_hint
                and listener.enable_proxy_protocol == 0):
            found.append(_open_to_all(config, listener, origin or listener.origin))
        if password_file and not listener.tls and listener.enable_proxy_protocol == 0:
            found.append(Finding(ATTENTION, f"listener {listener.where} accepts passwords without TLS: others on the "
                                 "path can read them", listener.origin, "Add certfile and keyfile, or bind it to "
                                                                       "127.0.0.1."))
    return found


def _open_to_all(config: Config, listener: Listener, origin: object) -> Finding:
    natives = _native_names(config, listener)
    if natives:
        return Finding(ATTENTION, f"listener {listener.where} has allow_anonymous true: only {natives} can refuse "
                       "clients that reach this machine", origin,
                       "Write allow_anonymous false if the plugin decides about logins; it is asked then too. Else add "
                       "a password_file and allow_anonymous false, or bind it: listener PORT 127.0.0.1.")
    return Finding(ATTENTION, f"listener {listener.where} lets in all clients that reach this machine, without a "
                   "password", origin,
                   "Add a password_file and allow_anonymous false, or bind it: listener PORT 127.0.0.1.")


def _passwords(config: Config) -> list[Finding]:
    found = []
    for pointer in pointers(config):
        if pointer.option != "password_file" or not pointer.readable:
            continue
        with open(pointer.path, "rb") as file:
            lines = file.read(PASSWORD_BYTES_MAX).splitlines()
        kinds = {"plain": 0, "old": 0, "broken": 0}
        for line in lines:
            line = line.strip()
            if line and not line.startswith(b"#"):
                kinds[_hash_kind(line)] = kinds.get(_hash_kind(line), 0) + 1
        where = f"password_file {pointer.path}"
        if kinds["plain"]:
            found.append(Finding(ATTENTION, f"{where}: {kinds['plain']} passwords are not hashed", pointer.origin,
                                 f"mosq passwd -U {pointer.path}"))
        if kinds["old"]:
            found.append(Finding(ATTENTION, f"{where}: {kinds['old']} passwords have old hashes ($6$, one round "
                                 "of SHA-512), which are quick to guess", pointer.origin,
                                 f"Set them again: mosq passwd {pointer.path} USER"))
        if kinds["broken"]:
            found.append(Finding(ATTENTION, f"{where}: {kinds['broken']} lines are not USER:HASH", pointer.origin))
    return found


def _hash_kind(line: bytes) -> str:
    name, colon, password = line.partition(b":")
    if not colon or not name or not password:
        return "broken"
    if password.startswith(b"$6$"):
        return "old"
    return "good" if password.startswith((b"$7$", b"$argon2id$")) else "plain"


def _acls(acls: dict[str, list[AclRule]]) -> list[Finding]:
    found = []
    for path, rules in acls.items():
        for _, kind, _, topic in rules:
            levels = topic.split("/")
            if kind == "pattern" and "%c" not in levels and "%u" not in levels:
                found.append(Finding(ATTENTION, f"acl_file {path}: the pattern '{topic[:80]}' has neither %c nor %u as "
                                     "a whole level: it applies to all clients"))
    return found[:20]
