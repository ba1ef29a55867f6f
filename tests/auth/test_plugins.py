"""Test plugins in Python through `Access`, as the data plane calls it."""

import importlib.metadata
import threading

import pytest

from mosq.auth.plugin import READ, SUBSCRIBE, UNSUBSCRIBE, WRITE, ConnectRequest, Plugin
from mosq.auth.runner import matches
from mosq.config.errors import ConfigError
from mosq.records import AccessRequest, ClientNotice, ExchangeRequest, MessageRequest, PublishCommand
from mosq.server.signals import Reading, Stopped
from tests.harness.effort import TIMEOUT_S as WAIT_S

from . import plugins_of_tests as ours
from .engine import config_of, plugin_line

LET_IN, GO_ON, REFUSED, BUSY, BAD_METHOD, PAUSED = 0, 0x18, 0x87, 0x89, 0x8C, 0x9F
MODULE = ours.__name__


@pytest.fixture(autouse=True)
def forget():
    ours.made.clear()


def load(engine, *names, password_file=None, **options):
    engine.start(config_of(password_file, [plugin_line(f"python:{MODULE}:{name}") for name in names], **options))
    return ours.made[-1]


# ---------------------------------------------------------------- loading

@pytest.mark.parametrize(("path", "says"), [
    ("python:no.such.module:Class", "no module 'no'"),
    (f"python:{MODULE}:Nothing", "has no 'Nothing'"),
    (f"python:{MODULE}:NotAPlugin", "no subclass of mosq.auth.plugin.Plugin"),
    (f"python:{MODULE}:made", "no subclass of"),
    (f"python:{MODULE}:Refuses", "refuses its options: expected plugin_opt_url"),
    (f"python:{MODULE}:Breaks", "RuntimeError in its constructor"),
    ("python:nameless", "no entry point 'nameless'"),
    ("/usr/lib/mosquitto_go_auth.so", "its library cannot be loaded"),
    ("mosquitto_dynamic_security.so", "Unknown option 'plugin_opt_password'"),
])
def test_a_load_error_names_line_and_reason_and_no_option_value(engine, path, says):
    with pytest.raises(ConfigError) as error:
        engine.start(config_of(plugins=[plugin_line(path, number=9, password="hunter2")]))
    assert says in str(error.value)
    assert (error.value.origin.file, error.value.origin.line) == ("mosq.conf", 9)
    assert "hunter2" not in str(error.value)


def test_an_entry_point(engine, monkeypatch):
    point = importlib.metadata.EntryPoint("all", f"{MODULE}:AllowsAll", "mosq.plugins")
    monkeypatch.setattr(importlib.metadata, "entry_points",
                        lambda group: importlib.metadata.EntryPoints([point] if group == "mosq.plugins" else []))
    engine.start(config_of(plugins=[plugin_line("python:all", colour="red")]))
    assert ours.made[-1].options == {"colour": "red"}
    assert engine.login("anybody") == LET_IN
    with pytest.raises(ConfigError, match="there are: all"):
        engine.access.reload(config_of(plugins=[plugin_line("python:other")]))


def test_only_implemented_methods_of_a_plugin_are_called(engine):
    load(engine, "Shout", "Listens")
    assert engine.access.securities() == [{
        "acl": None, "authenticate": False, "login_anonymous": False, "roles": None, "authorize": False, "extended": False,
        "transform_in": ("in/#", "$x/in"), "transform_out": ("out/+",), "events": True}]


def test_a_plugin_line_of_several_listeners_makes_one_instance(engine):
    line = plugin_line(f"python:{MODULE}:AllowsAll")
    config = config_of(listeners=3)
    config.listeners[1].plugins = config.listeners[2].plugins = [line]
    engine.start(config)
    assert len(ours.made) == 1
    assert [s["authenticate"] for s in engine.access.securities()] == [False, True, True]
    assert engine.login(security=2) == LET_IN


# ---------------------------------------------------------------- log-ins

def test_verdicts(engine):
    plugin = load(engine, "ByName")
    assert decided(engine, engine.connect("allow")) == (LET_IN, None, None)
    assert decided(engine, engine.connect("deny")) == (REFUSED, None, None)
    assert decided(engine, engine.connect("as-ben")) == (LET_IN, "ben", None)
    assert plugin.calls[0] == ConnectRequest("c", "allow", b"secret", "192.0.2.1", 40000, 5, None)
    assert "secret" not in repr(plugin.calls[0])


@pytest.mark.parametrize("user", ["fails", "none", "bad", "long", "on"])
def test_a_failing_plugin_refuses_and_is_logged_without_secrets(engine, user):
    load(engine, "ByName")
    assert engine.login(user, b"hunter2") == REFUSED
    assert engine.login("allow") == LET_IN
    engine.access.tick()
    told = [line for line in engine.lines if "ByName" in line]
    assert len(told) == 1
    assert "authenticate" in told[0]
    assert "hunter2" not in "".join(engine.lines)


def test_a_plugin_that_fails_often_is_logged_once_a_minute(engine):
    load(engine, "ByName", auth_backoff=False)
    for i in range(50):
        assert engine.login(f"fails{i}") == REFUSED
    engine.access.tick()
    assert len(engine.lines) == 1


def test_a_deferred_login_continues_with_the_next_plugin(engine, password_file):
    load(engine, "ByName", "ByName", password_file=password_file)
    second = ours.made[1]
    assert engine.login("allow") == LET_IN
    assert len(second.calls) == 0
    assert engine.login("defer") == REFUSED
    assert len(second.calls) == 1
    assert engine.login("deny") == REFUSED
    assert len(second.calls) == 1


def test_a_deferred_login_continues_with_the_password_file(engine, tmp_path):
    from .conftest import write_users
    write_users(tmp_path / "passwd", defer=b"secret")
    load(engine, "ByName", password_file=tmp_path / "passwd")
    assert engine.login("defer", b"secret") == LET_IN
    assert engine.login("defer", b"wrong") == REFUSED


def test_unknown_users_are_refused_and_anonymous_is_left_undecided(engine):
    load(engine, "ByName")
    assert engine.login("defer") == REFUSED
    assert engine.login(None, None) == -1


def test_a_plugin_is_asked_about_clients_without_a_user_name(engine):
    plugin = load(engine, "AllowsAll")
    assert engine.access.securities()[0]["login_anonymous"]
    assert engine.login(None, None) == LET_IN
    assert plugin.calls[0].username is None


def test_guesses_are_paused(engine):
    plugin = load(engine, "ByName")
    codes = [engine.login("deny") for _ in range(20)]
    assert codes[-1] == PAUSED
    assert len(plugin.calls) < 10


def test_a_slow_plugin_delays_only_its_own_listener(engine, tmp_path):
    from .conftest import write_users
    write_users(tmp_path / "passwd", ann=b"secret")
    config = config_of(listeners=3, password_file=tmp_path / "passwd")
    config.listeners[0].plugins = [plugin_line(f"python:{MODULE}:Slow")]
    config.listeners[1].plugins = [plugin_line(f"python:{MODULE}:AllowsAll")]
    engine.start(config)
    ours.Slow.go.clear()
    slow = engine.connect(security=1)
    engine.access.take([slow])
    try:
        assert engine.login(security=2) == LET_IN
        assert engine.login(security=0) == LET_IN
        assert not [answer for answer in engine.answers if answer.handle == slow.handle]
    finally:
        ours.Slow.go.set()
    engine.wait(lambda so_far: any(answer.handle == slow.handle for answer in so_far))


def test_a_plugin_with_a_full_queue_refuses(engine, monkeypatch):
    monkeypatch.setattr("mosq.auth.runner.WAITING_MAX", 2)
    plugin = load(engine, "Slow")
    ours.Slow.go.clear()
    try:
        engine.access.take([engine.connect("a0")])
        while not plugin.calls:
            pass
        engine.access.take([engine.connect(f"a{i}") for i in range(1, 6)])
        answers = engine.wait(lambda so_far: len(so_far) == 3)
        assert {answer.code for answer in answers} == {BUSY}
    finally:
        ours.Slow.go.set()
    engine.wait(lambda so_far: len(so_far) == 6)


def test_requests_after_the_timeout_reach_no_plugin(engine):
    plugin = load(engine, "AllowsAll", auth_timeout=-1)
    engine.access.take([engine.connect()])
    done = threading.Event()
    engine.access._plugins._runners[next(iter(engine.access._plugins._runners))].put(done.set)
    assert done.wait(WAIT_S)
    assert plugin.calls == []
    engine.access.tick()
    assert "longer than auth_timeout" in engine.lines[0]


def test_a_plugin_that_hangs_is_logged(engine, monkeypatch):
    plugin = load(engine, "Slow", auth_timeout=1)
    ours.Slow.go.clear()
    try:
        engine.access.take([engine.connect()])
        while not plugin.calls:
            pass
        monkeypatch.setattr("mosq.server.access.monotonic", lambda: 1e12)
        engine.access.tick()
        assert "no answer for" in "".join(engine.lines)
    finally:
        ours.Slow.go.set()


def test_a_concurrent_plugin_is_called_several_times_at_once(engine):
    load(engine, "Concurrent")
    engine.access.take([engine.connect(f"u{i}") for i in range(4)])
    answers = engine.wait(lambda so_far: len(so_far) == 4)
    assert {answer.code for answer in answers} == {LET_IN}


# ---------------------------------------------------------------- exchanges

def decided(engine, request):
    return tuple(engine.ask(request))[1:4]


def step(handle, data, reauth=False, method="twice"):
    return ExchangeRequest(handle, 0, method, data, reauth)


def test_an_exchange_keeps_its_state_from_step_to_step(engine):
    plugin = load(engine, "OtherMethod", "Challenge")
    first = engine.connect("ann", method="twice", data=b"hello")
    handle = first.handle
    assert decided(engine, first) == (GO_ON, None, b"abc2")
    engine.answers.clear()
    assert decided(engine, step(handle, b"2cba")) == (GO_ON, None, b"abc1")
    engine.answers.clear()
    assert decided(engine, step(handle, b"1cba")) == (LET_IN, "ann", b"welcome")
    assert [(s.first, s.reauth, s.client_id, s.username, s.address) for s in plugin.calls] == [
        (True, False, "c", "ann", "192.0.2.1"), (False, False, "c", "ann", "192.0.2.1"),
        (False, False, "c", "ann", "192.0.2.1")]
    assert len(engine.access._plugins._exchanges) == 0


def test_two_exchanges_do_not_mix(engine):
    load(engine, "Challenge")
    one, other = engine.connect("ann", method="twice"), engine.connect("ben", method="twice")
    engine.ask(one)
    engine.ask(other)
    engine.answers.clear()
    assert engine.ask(step(one.handle, b"2cba")).code == GO_ON
    assert engine.ask(step(other.handle, b"wrong")).code == REFUSED
    engine.answers.clear()
    assert engine.ask(step(one.handle, b"1cba")).code == LET_IN


def test_a_re_authentication_begins_a_new_exchange(engine):
    plugin = load(engine, "Challenge")
    assert decided(engine, step(77, b"x", reauth=True)) == (GO_ON, None, b"abc2")
    assert (plugin.calls[0].first, plugin.calls[0].reauth) == (True, True)


def test_an_unknown_method_is_refused(engine):
    load(engine, "OtherMethod", "Challenge")
    assert engine.login(method="unknown") == BAD_METHOD
    assert engine.login(method="other") == LET_IN


def test_a_failure_ends_the_exchange(engine):
    load(engine, "Challenge")
    first = engine.connect(method="twice")
    engine.ask(first)
    engine.answers.clear()
    assert engine.ask(step(first.handle, b"raise")).code == REFUSED
    assert len(engine.access._plugins._exchanges) == 0
    engine.access.tick()
    assert "secret" not in "".join(engine.lines)


def test_exchanges_are_bounded(engine, monkeypatch):
    monkeypatch.setattr("mosq.auth.plugins.EXCHANGES_MAX", 5)
    load(engine, "Challenge")
    for _ in range(20):
        engine.login(method="twice")
    assert len(engine.access._plugins._exchanges) == 5


# ---------------------------------------------------------------- rights of clients

def acl(engine, access, topic, user="ann", client_id="c"):
    return engine.ask(AccessRequest(engine.handle(), 0, client_id, user, "192.0.2.1", access, topic, 1, True, b"x")).allowed


def test_decisions(engine):
    plugin = load(engine, "Rules")
    assert acl(engine, WRITE, "private/ann/x") is True
    assert acl(engine, READ, "private/ben/x") is False
    assert acl(engine, SUBSCRIBE, "private/ben/x") is True
    assert acl(engine, UNSUBSCRIBE, "x") is False
    assert acl(engine, READ, "open/x") is None          # the acl_file decides
    assert acl(engine, READ, "fail") is False
    request = plugin.calls[0]
    assert (request.client_id, request.username, request.access, request.topic, request.qos, request.retain,
            request.payload) == ("c", "ann", WRITE, "private/ann/x", 1, True, b"x")


@pytest.mark.parametrize(("user", "client_id", "what"), [
    ("a+b", "c", "username"), ("#", "c", "username"), ("a/b", "c", "username"), ("ann", "c/d", "client id"),
    (None, "+", "client id"),
])
def test_names_with_slashes_or_wildcards_are_denied_before_the_plugin(engine, user, client_id, what):
    plugin = load(engine, "Rules")
    for _ in range(5):
        assert acl(engine, SUBSCRIBE, "x", user, client_id) is False
    assert plugin.calls == []
    engine.access.tick()
    assert engine.lines == [f'ACL denying access to client with dangerous {what} "{user if what == "username" else client_id}"']


def test_auth_plugin_deny_special_chars_false_requests_all_names(engine):
    engine.start(config_of(plugins=[plugin_line(f"python:{MODULE}:Rules", deny_special_chars=False)]))
    assert acl(engine, SUBSCRIBE, "x", "a/b", "c#") is True


def test_several_authorizers(engine):
    load(engine, "Rules", "Rules")
    first, second = ours.made
    assert acl(engine, READ, "open/x") is None
    assert acl(engine, READ, "private/ann/x") is True
    assert (len(first.calls), len(second.calls)) == (2, 1)


# ---------------------------------------------------------------- messages

def message(engine, topic, payload, kind="message_in"):
    content = engine.ask(MessageRequest(kind, engine.handle(), 0, "c", "ann", topic, payload, 0, False, b"")).content
    return content and tuple(content)[:4]


def test_messages_are_changed_dropped_or_left(engine):
    plugin = load(engine, "Shout")
    assert message(engine, "in/a", b"x") == ("in/a", b"X", 1, False)
    assert message(engine, "in/a", b"same") == ("in/a", b"same", 0, False)
    assert message(engine, "in/a", b"drop") is None
    assert message(engine, "in/a", b"fail") is None
    assert message(engine, "in/a", b"bad") is None
    assert message(engine, "out/a", b"x", "message_out") == ("changed/out/a", b"<x>", 0, False)
    assert (plugin.calls[0].client_id, plugin.calls[0].username) == ("c", "ann")


def test_only_messages_that_match_are_shown(engine):
    plugin = load(engine, "Shout")
    assert message(engine, "other", b"x") == ("other", b"x", 0, False)
    assert message(engine, "$x/in", b"x") == ("$x/in", b"X", 1, False)
    assert message(engine, "$x/in/y", b"x") == ("$x/in/y", b"x", 0, False)
    assert len(plugin.calls) == 1


def test_several_transforms_run_in_order(engine):
    load(engine, "Shout", "Twice")
    assert message(engine, "in/both", b"x") == ("in/both", b"XX", 1, False)
    assert message(engine, "in/one", b"x") == ("in/one", b"X", 1, False)


def test_messages_of_a_plugin_are_sent_before_its_answer(engine):
    load(engine, "Shout")
    assert message(engine, "in/a", b"publish") == ("in/a", b"PUBLISH", 1, False)
    assert [answer.kind for answer in engine.answers] == ["publish", "message_in"]
    assert engine.answers[0] == PublishCommand("copy", b"publish", 1, True)


@pytest.mark.parametrize(("topic", "qos"), [("a/+", 0), ("#", 0), ("", 0), ("a\0", 0), ("x" * 65536, 0), ("a", 3)])
def test_a_plugin_cannot_publish_invalid_messages(engine, topic, qos):
    plugin = load(engine, "Shout")
    with pytest.raises(ValueError):
        plugin.broker.publish(topic, b"x", qos)
    assert engine.answers == []


@pytest.mark.parametrize(("filter", "topic", "yes"), [
    ("a/b", "a/b", True), ("a/b", "a", False), ("a", "a/b", False), ("a/+", "a/b", True), ("a/+", "a", False),
    ("a/+", "a/", True), ("a/#", "a", True), ("a/#", "a/b/c", True), ("#", "a", True), ("#", "$a", False),
    ("+/b", "$a/b", False), ("$a/#", "$a/b", True), ("+", "", True), ("a/+/c", "a/b/c", True), ("a/+/c", "a/b/d", False),
])
def test_matching(filter, topic, yes):
    assert matches(tuple(filter.split("/")), topic) is yes


# ---------------------------------------------------------------- events, reload, end

def test_events_and_ticks(engine):
    plugin = load(engine, "Listens")
    engine.access.take([ClientNotice(0, kind, "c", "ann", "why") for kind in ("connected", "subscribed", "disconnected")])
    assert plugin.seen.acquire(timeout=WAIT_S)
    assert plugin.seen.acquire(timeout=WAIT_S)
    assert plugin.calls == [("connected", "c", "ann", "why"), ("disconnected", "c", "ann", "why")]
    engine.access.tick()
    assert plugin.seen.acquire(timeout=WAIT_S)
    assert plugin.calls[-1] == ("tick",)
    assert len(engine.lines) == 1
    assert "subscribed" in engine.lines[0]
    assert "secret" not in engine.lines[0]


def reloaded(engine, config):
    old, engine.access = engine.access, engine.access.reload(config)
    old.close()


def test_a_plugin_with_a_reload_method_stays_and_is_called(engine):
    def config(word):
        return config_of(plugins=[plugin_line(f"python:{MODULE}:Reloads", word=word)])

    engine.start(config("one"))
    assert engine.login("ann", b"one") == LET_IN
    reloaded(engine, config("two"))
    assert engine.login("ann", b"two") == LET_IN
    assert engine.login("ann", b"one") == REFUSED
    assert len(ours.made) == 1
    assert ours.made[0].reloads == [{"word": "two"}]
    assert ours.made[0].closed == 0


def test_an_abandoned_reload_calls_no_plugin(engine):
    line = plugin_line(f"python:{MODULE}:Reloads", word="one")
    engine.start(config_of(plugins=[line]))
    engine.access.reload(config_of(plugins=[plugin_line(f"python:{MODULE}:Reloads", word="two")])).close()
    assert engine.login("ann", b"one") == LET_IN
    assert ours.made[0].reloads == []


def test_a_stop_within_a_reload_ends_both_plugins(engine):
    kept, new = (plugin_line(f"python:{MODULE}:{name}") for name in ("Reloads", "AllowsAll"))
    reading = Reading()

    class Stops(Reading):
        def end(self):
            raise Stopped

    engine.start(config_of(plugins=[kept]))
    with pytest.raises(Stopped):
        engine.access.reload(config_of(plugins=[kept, new]), reading=Stops())
    assert [plugin.closed for plugin in ours.made] == [0, 1]
    with reading:
        access = engine.access.reload(config_of(plugins=[kept, new]), reading=reading)
        assert not reading.active       # a stop waits from here on
    engine.access.close()
    access.close()                      # the last holder waits for the plugins
    assert [plugin.closed for plugin in ours.made] == [1, 1, 1]


def test_a_plugin_without_reload_is_replaced_if_its_options_change(engine):
    engine.start(config_of(plugins=[plugin_line(f"python:{MODULE}:AllowsAll", colour="red")]))
    reloaded(engine, config_of(plugins=[plugin_line(f"python:{MODULE}:AllowsAll", colour="red")]))
    assert len(ours.made) == 1
    reloaded(engine, config_of(plugins=[plugin_line(f"python:{MODULE}:AllowsAll", colour="blue")]))
    assert len(ours.made) == 2
    assert engine.login() == LET_IN
    assert [p.closed for p in ours.made] == [1, 0] or _eventually_closed(ours.made[0])
    assert ours.made[1].closed == 0


def _eventually_closed(plugin):
    """Wait until it is closed, which may take some time: a reload does not wait for an old plugin."""
    for thread in threading.enumerate():
        if "plugin-" in thread.name:
            thread.join(0.5)
    return plugin.closed == 1


def test_a_reload_with_a_bad_plugin_changes_nothing(engine):
    plugin = load(engine, "AllowsAll")
    with pytest.raises(ConfigError):
        engine.access.reload(config_of(plugins=[plugin_line(f"python:{MODULE}:AllowsAll"),
                                                plugin_line(f"python:{MODULE}:Refuses")]))
    assert engine.login() == LET_IN
    assert plugin.closed == 0


def test_close_closes_plugins(engine):
    plugin = load(engine, "AllowsAll")
    engine.access.close()
    assert plugin.closed == 1
    engine.access.close()
    assert plugin.closed == 1


def test_the_methods_of_the_base_class_decide_nothing():
    plugin = Plugin({})
    assert plugin.authenticate(None).decision == plugin.extended(None).decision == plugin.authorize(None).decision == "defer"
    assert plugin.message_in(None) is plugin.message_out(None) is None
    for method in (plugin.connected, plugin.disconnected, plugin.subscribed, plugin.unsubscribed, plugin.reload):
        assert method(None) is None
    assert plugin.tick() is plugin.close() is None
