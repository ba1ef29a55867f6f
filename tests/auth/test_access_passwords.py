"""Test logins by password file through `Access`, as the data plane requests them."""

import threading

import pytest

from mosq.server import access
from mosq.auth.hashes import Hash
from mosq.config.errors import ConfigError
from mosq.records import AccessRequest, AskAgain, ClientNotice, LoginWait

from .conftest import write_users
from .engine import config_of

LET_IN, REFUSED, PAUSED, BUSY = 0, 0x87, 0x9F, 0x89


@pytest.fixture
def checks(monkeypatch):
    """Count the computed hashes."""
    done = []
    matches = Hash.matches
    monkeypatch.setattr(Hash, "matches", lambda self, password: done.append(password) or matches(self, password))
    return done


def test_logins_with_good_wrong_and_unknown_credentials(engine, password_file):
    engine.start(config_of(password_file))
    assert engine.login("ann", b"secret") == LET_IN
    assert engine.login("ben", b"other") == LET_IN
    assert engine.login("ann", b"other") == REFUSED
    assert engine.login("ann", b"") == REFUSED
    assert engine.login("ann", None) == REFUSED
    assert engine.login("cid", b"secret") == REFUSED


def test_without_a_user_name_allow_anonymous_decides(engine, password_file):
    engine.start(config_of(password_file))
    assert engine.login(None, None) == access.NO_OPINION


def test_an_unknown_user_costs_a_hash_too(engine, password_file, checks):
    engine.start(config_of(password_file))
    engine.login("nobody", b"x")
    assert checks == [b"x"]


def test_a_repeated_login_costs_no_hash(engine, password_file, checks):
    engine.start(config_of(password_file))
    for _ in range(5):
        assert engine.login("ann", b"secret") == LET_IN
    assert len(checks) == 1
    assert engine.login("ann", b"wrong") == REFUSED
    assert len(checks) == 2


def test_auth_cache_size_0_hashes_every_time(engine, password_file, checks):
    engine.start(config_of(password_file, auth_cache_size=0))
    for _ in range(3):
        assert engine.login("ann", b"secret") == LET_IN
    assert len(checks) == 3


def test_guesses_are_refused_without_a_hash(engine, password_file, checks):
    engine.start(config_of(password_file))
    codes = [engine.login("ann", b"guess%d" % i) for i in range(20)]
    assert codes[:3] == [REFUSED] * 3
    assert PAUSED in codes
    assert len(checks) < 10


def test_a_remembered_client_is_not_paused(engine, password_file):
    engine.start(config_of(password_file))
    assert engine.login("ann", b"secret") == LET_IN
    for i in range(10):
        engine.login("ann", b"guess%d" % i)
    assert engine.login("ann", b"guess") == PAUSED
    assert engine.login("ann", b"secret") == LET_IN


def test_queued_logins_after_failures_are_refused_without_a_hash(engine, password_file, checks):
    engine.start(config_of(password_file, auth_threads=1))
    requests = [engine.connect("ann", b"guess%d" % i) for i in range(200)]
    engine.access.take(requests)
    answers = engine.wait(lambda so_far: len(so_far) == 200)
    assert len(checks) < 10
    assert {answer.code for answer in answers} == {REFUSED, PAUSED}


def test_auth_backoff_false_never_pauses(engine, password_file):
    engine.start(config_of(password_file, auth_backoff=False))
    assert {engine.login("ann", b"guess%d" % i) for i in range(20)} == {REFUSED}


def test_many_failing_users_pause_their_address_with_one_log_line(engine, password_file):
    engine.start(config_of(password_file))
    codes = [engine.login(f"user{i}", b"x") for i in range(20)]
    assert PAUSED in codes
    assert engine.login("ann", b"secret") == PAUSED
    assert engine.login("ann", b"secret", address="192.0.2.2") == LET_IN
    engine.access.tick()
    assert len([line for line in engine.lines if "192.0.2.1" in line]) == 1


def test_a_full_pool_is_busy(engine, password_file, monkeypatch):
    monkeypatch.setattr(access, "WAITING_MAX", 3)
    engine.start(config_of(password_file, auth_threads=1))
    begun, go = threading.Event(), threading.Event()
    monkeypatch.setattr(Hash, "matches", lambda self, password: begun.set() or go.wait(20))
    engine.access.take([engine.connect("ann", b"0")])
    assert begun.wait(20)
    engine.access.take([engine.connect(f"u{i}", b"x") for i in range(5)])
    answers = engine.wait(lambda so_far: len(so_far) == 2)
    assert [answer.code for answer in answers] == [BUSY, BUSY]
    go.set()
    engine.wait(lambda so_far: len(so_far) == 6)


def test_a_login_after_the_timeout_is_not_hashed(engine, password_file, checks, monkeypatch):
    monkeypatch.setattr(access, "QUEUE_S", -1)
    engine.start(config_of(password_file, auth_timeout=-1))
    engine.access.take([engine.connect("ann", b"secret") for _ in range(10)])
    answers = engine.wait(lambda so_far: len(so_far) == 10)
    assert {answer.code for answer in answers} == {BUSY}
    assert checks == []


def test_queued_logins_get_more_time_to_wait(engine, password_file, monkeypatch):
    engine.start(config_of(password_file, auth_threads=1, auth_timeout=10))
    begun, go = threading.Event(), threading.Event()
    monkeypatch.setattr(Hash, "matches", lambda self, password: begun.set() or go.wait(20))
    engine.access.take([engine.connect("ann", b"0")])
    assert begun.wait(20)
    later = [engine.connect("ben", b"x"), engine.connect("ben", b"y"), engine.connect("cid", b"z")]
    engine.access.take(later)
    assert engine.waits == [LoginWait(request.handle, access.QUEUE_S + 10) for request in later[1:]]
    go.set()
    engine.wait(lambda so_far: len(so_far) == 4)


def test_many_logins_with_one_password_are_hashed_once(engine, password_file, checks):
    engine.start(config_of(password_file, auth_threads=1))
    engine.access.take([engine.connect("ann", b"secret") for _ in range(50)])
    answers = engine.wait(lambda so_far: len(so_far) == 50)
    assert {answer.code for answer in answers} == {LET_IN}
    assert checks == [b"secret"]


def test_each_of_many_users_gets_its_own_answer(engine, tmp_path):
    write_users(tmp_path / "passwd", **{f"u{i}": b"pw%d" % i for i in range(100)})
    engine.start(config_of(tmp_path / "passwd", auth_backoff=False))
    wanted = {}
    for i in range(150):
        request = engine.connect(f"u{i}", b"pw%d" % i if i % 3 else b"other")
        wanted[request] = LET_IN if i % 3 and i < 100 else REFUSED
    engine.access.take(list(wanted))
    answers = engine.wait(lambda so_far: len(so_far) == 150)
    assert {answer.handle: answer.code for answer in answers} == {request.handle: rc for request, rc in wanted.items()}


def test_an_error_in_hashing_is_answered(engine, password_file, monkeypatch):
    engine.start(config_of(password_file))
    monkeypatch.setattr(Hash, "matches", lambda self, password: 1 // 0)
    assert engine.login("ann", b"secret") == BUSY
    engine.access.tick()
    assert "ZeroDivisionError" in engine.lines[0]


def test_answers_come_in_batches(engine, tmp_path):
    write_users(tmp_path / "passwd", **{f"u{i}": b"pw" for i in range(300)})
    engine.start(config_of(tmp_path / "passwd"))
    engine.access.take([engine.connect(f"u{i}", b"pw") for i in range(300)])
    answers = engine.wait(lambda so_far: len(so_far) == 300)
    assert {answer.code for answer in answers} == {LET_IN}
    assert engine.batches < 150


def test_a_reload_reads_new_users_and_keeps_remembered_logins(engine, password_file, checks):
    engine.start(config_of(password_file))
    assert engine.login("ann", b"secret") == LET_IN
    assert engine.login("ben", b"other") == LET_IN
    text = password_file.read_text()
    write_users(password_file, ann=b"changed", cid=b"new")
    password_file.write_text(password_file.read_text() + text.splitlines()[1] + "\n")
    old, engine.access = engine.access, engine.access.reload(config_of(password_file))
    old.close()
    before = len(checks)
    assert engine.login("ben", b"other") == LET_IN
    assert len(checks) == before
    assert engine.login("ann", b"secret") == REFUSED
    assert engine.login("ann", b"changed") == LET_IN
    assert engine.login("cid", b"new") == LET_IN


def test_changed_and_removed_users_are_revoked(engine, tmp_path):
    path = tmp_path / "passwd"
    write_users(path, ann=b"1", ben=b"2", cid=b"3")
    engine.start(config_of(path))
    kept = path.read_text().splitlines()[1]
    write_users(path, ann=b"changed", new=b"4")
    path.write_text(path.read_text() + kept + "\n")
    old, engine.access = engine.access, engine.access.reload(config_of(path))
    assert engine.access.revoked(old) == {"ann", "cid"}
    assert engine.access.revoked(engine.access) == set()
    old.close()


def test_a_request_for_a_removed_security_is_asked_again(engine, password_file):
    engine.start(config_of(password_file))
    login = engine.connect(security=3)
    assert engine.ask(login) == AskAgain(login.handle)
    assert engine.ask(AccessRequest(5, 9, "c", "ann", "", 1, "t", 0, False)) == AskAgain(5)
    engine.access.take([ClientNotice(9, "connected", "c", "ann", "")])


def test_a_failed_reload_leaves_the_old_file_in_force(engine, password_file):
    engine.start(config_of(password_file))
    before = password_file.read_text()
    password_file.write_text(before + "ann:plain\n")
    with pytest.raises(ConfigError, match="not hashed"):
        engine.access.reload(config_of(password_file))
    assert engine.login("ann", b"secret") == LET_IN


def test_an_abandoned_reload_leaves_the_old_file_in_force(engine, password_file):
    engine.start(config_of(password_file))
    engine.access.reload(config_of(password_file, auth_threads=1)).close()
    assert engine.login("ann", b"secret") == LET_IN


def test_per_listener_settings(engine, tmp_path):
    write_users(tmp_path / "one", ann=b"1")
    write_users(tmp_path / "two", ann=b"2")
    config = config_of(listeners=3, per_listener=True)
    config.listeners[0].security["password_file"] = str(tmp_path / "one")
    config.listeners[1].security["password_file"] = str(tmp_path / "two")
    engine.start(config)
    assert [s["authenticate"] for s in engine.access.securities()] == [True, True, False]
    assert engine.login("ann", b"1", security=0) == LET_IN
    assert engine.login("ann", b"1", security=1) == REFUSED
    assert engine.login("ann", b"2", security=1) == LET_IN
    # a verdict that one remembers is unknown to the other
    assert engine.login("ann", b"1", security=1) == REFUSED


def test_fields_of_a_security_with_a_password_file(engine, password_file):
    engine.start(config_of(password_file))
    assert engine.access.securities() == [{"acl": None, "authenticate": True, "login_anonymous": False, "roles": None,
                                           "authorize": False, "extended": False,
                                           "transform_in": (), "transform_out": (), "events": False}]


def test_warnings_of_the_file_reach_the_log(engine, password_file):
    password_file.chmod(0o644)
    engine.start(config_of(password_file))
    engine.access.tick()
    assert any("world readable" in line for line in engine.lines)


def test_no_password_or_hash_reaches_the_log(engine, password_file):
    engine.start(config_of(password_file))
    for i in range(30):
        engine.login(f"user{i}", b"hunter2")
    engine.access.tick()
    assert "hunter2" not in "".join(engine.lines)


def test_a_pause_hides_a_remembered_password_from_other_addresses(engine, password_file, checks):
    engine.start(config_of(password_file))
    assert engine.login("ann", b"secret", address="192.0.2.1") == LET_IN
    for i in range(10):
        engine.login("ann", b"guess%d" % i, address="203.0.113.9")
    computed = len(checks)
    assert [engine.login("ann", guess, address="203.0.113.9") for guess in (b"guess", b"secret")] == [PAUSED, PAUSED]
    assert engine.login("ann", b"secret", address="192.0.2.1") == LET_IN
    assert len(checks) == computed
