"""Test the JWT plugin with real tokens."""

import time
import tracemalloc
from types import SimpleNamespace

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings, strategies as st

import mosq.auth.jwt
import mosq.auth.rights
from mosq.auth.jwt import Jwt, JwtAcl, covers
from mosq.auth.plugin import ALLOW, DENY, AclRequest, ClientEvent, ConnectRequest
from mosq.auth.runner import matches
from mosq.config.errors import ConfigError
from mosq.records import AccessRequest

from tests.broker import acl_model, test_acl
from tests.harness.effort import tries

from .conftest import write_users
from .engine import config_of, plugin_line

LET_IN, REFUSED = 0, 0x87
SECRET = "s" * 32
READ, WRITE, SUBSCRIBE = 1, 2, 4


def token(key=SECRET, algorithm="HS256", **claims):
    return jwt.encode({"sub": "ann", "exp": time.time() + 60, **claims}, key, algorithm).encode()


def start(engine, kind="Jwt", password_file=None, **options):
    options = {"algorithms": "HS256", "secret": SECRET, **options}
    options = {name: value for name, value in options.items() if value is not None}
    engine.start(config_of(password_file, [plugin_line(f"python:mosq.auth.jwt:{kind}", **options)], auth_backoff=False))


def test_a_good_token(engine):
    start(engine)
    assert engine.login("ann", token()) == LET_IN


@pytest.mark.parametrize(("user", "changes"), [
    ("ben", {}),
    ("ann", {"exp": time.time() - 10}),
    ("ann", {"exp": None}),
    ("ann", {"exp": "soon"}),
    ("ann", {"nbf": time.time() + 86400}),
    ("ann", {"iat": time.time() + 86400}),
    ("ann", {"sub": None}),
    ("ann", {"key": "t" * 32}),
    ("ann", {"key": SECRET * 2, "algorithm": "HS512"}),
    ("ann", {"key": None, "algorithm": "none"}),
])
def test_bad_tokens(engine, user, changes):
    start(engine)
    claims = dict(changes)
    if claims.get("exp", 1) is None:
        password = jwt.encode({"sub": "ann"}, SECRET, "HS256").encode()
    elif claims.get("sub", 1) is None:
        password = jwt.encode({"exp": time.time() + 60}, SECRET, "HS256").encode()
    else:
        password = token(**claims)
    assert engine.login(user, password) == REFUSED


@pytest.mark.parametrize("cut", [b"..", b"a.b.c", b"\xff.\xfe.\xfd"])
def test_texts_that_only_look_like_tokens_are_refused(engine, cut):
    start(engine)
    assert engine.login("ann", cut) == REFUSED


def test_audience_and_issuer(engine):
    start(engine, audience="mqtt", issuer="us")
    assert engine.login("ann", token(aud=["mqtt", "web"], iss="us")) == LET_IN
    assert engine.login("ann", token(aud="mqtt", iss="them")) == REFUSED
    assert engine.login("ann", token(aud="web", iss="us")) == REFUSED
    assert engine.login("ann", token(aud="mqtt")) == REFUSED
    assert engine.login("ann", token(iss="us")) == REFUSED


def test_without_a_configured_audience_any_is_accepted(engine):
    start(engine)
    assert engine.login("ann", token(aud="web")) == LET_IN


def test_username_claim_and_leeway(engine):
    start(engine, username_claim="device", leeway="30")
    assert engine.login("d1", token(device="d1", exp=time.time() - 10)) == LET_IN
    assert engine.login("ann", token()) == REFUSED


def test_other_passwords_are_left_to_the_password_file(engine, tmp_path):
    write_users(tmp_path / "passwd", ben=b"plain")
    start(engine, password_file=tmp_path / "passwd")
    assert engine.login("ann", token()) == LET_IN
    assert engine.login("ben", b"plain") == LET_IN
    assert engine.login("ben", b"wrong") == REFUSED
    assert engine.login("ann", None) == REFUSED


def pem(private, path):
    path.write_bytes(private.public_key().public_bytes(serialization.Encoding.PEM,
                                                       serialization.PublicFormat.SubjectPublicKeyInfo))
    return str(path)


@pytest.fixture(scope="module")
def rsa_key():
    return rsa.generate_private_key(65537, 2048)


def test_public_keys(engine, tmp_path, rsa_key):
    curve = ec.generate_private_key(ec.SECP256R1())
    for private, algorithm in ((rsa_key, "RS256"), (curve, "ES256")):
        start(engine, algorithms=algorithm, secret=None, public_key_file=pem(private, tmp_path / algorithm))
        assert engine.login("ann", token(private, algorithm)) == LET_IN
        assert engine.login("ann", token(ec.generate_private_key(ec.SECP256R1()), "ES256")) == REFUSED
        engine.access.close()


def test_a_public_key_is_no_secret(engine, tmp_path, rsa_key):
    """Test a known attack: a token signed with HS256, with the public key as the secret."""
    path = pem(rsa_key, tmp_path / "key")
    start(engine, algorithms="RS256", secret=None, public_key_file=path)
    with open(path) as file:
        text = file.read()
    import base64
    import hashlib
    import hmac
    import json

    def part(value):
        return base64.urlsafe_b64encode(value).rstrip(b"=")

    head = part(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    body = part(json.dumps({"sub": "ann", "exp": int(time.time()) + 60}).encode())
    signature = part(hmac.new(text.encode(), head + b"." + body, hashlib.sha256).digest())
    assert engine.login("ann", b".".join((head, body, signature))) == REFUSED


def test_a_secret_in_a_file(engine, tmp_path):
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    start(engine, secret=None, secret_file=str(path))
    assert engine.login("ann", token()) == LET_IN


@pytest.mark.parametrize(("options", "says"), [
    ({"secret": None}, "expected one of"),
    ({"secret_file": "/x"}, "expected one of"),
    ({"secret": "short"}, "has 5 bytes; expected at least 32"),
    ({"algorithms": None}, "plugin_opt_algorithms"),
    ({"algorithms": "none"}, "plugin_opt_algorithms"),
    ({"algorithms": "RS256"}, "plugin_opt_algorithms"),
    ({"algorithms": "HS512"}, "expected at least 64"),
    ({"secret": None, "secret_file": "/no/such"}, "unable to read /no/such"),
    ({"secret": None, "public_key_file": "/no/such", "algorithms": "RS256"}, "unable to read /no/such"),
    ({"secret": None, "public_key_file": "/dev/null", "algorithms": "RS256"}, "no public key in PEM"),
    ({"leeway": "x"}, "leeway"),
    ({"colour": "red"}, "unknown option 'colour'"),
])
def test_options(engine, options, says):
    with pytest.raises(ConfigError, match=says):
        start(engine, **options)


def test_a_key_of_another_kind(engine, tmp_path, rsa_key):
    with pytest.raises(ConfigError, match="no public key in PEM for ES256"):
        start(engine, algorithms="ES256", secret=None, public_key_file=pem(rsa_key, tmp_path / "key"))


@given(st.binary(max_size=200))
def test_any_password_has_a_verdict(password):
    plugin = Jwt({"algorithms": "HS256", "secret": SECRET})
    verdict = plugin.authenticate(ConnectRequest("c", "ann", password, "", 0, 5, None))
    assert verdict.decision in ("deny", "defer")


# ---------------------------------------------------------------- rights

def acl(engine, access, topic, user="ann", client_id="c"):
    return engine.ask(AccessRequest(engine.handle(), 0, client_id, user, "192.0.2.1", access, topic, 0, False, None)).allowed


def test_rights_of_a_token(engine):
    start(engine, "JwtAcl")
    assert engine.login("ann", token(publ=["out/%u/#"], subs=["in/+", "all/#"])) == LET_IN
    assert acl(engine, WRITE, "out/ann/x") is True
    assert acl(engine, WRITE, "out/ben/x") is False
    assert acl(engine, WRITE, "in/x") is False
    assert acl(engine, READ, "in/x") is True
    assert acl(engine, SUBSCRIBE, "in/x") is True
    assert acl(engine, SUBSCRIBE, "in/+") is True
    assert acl(engine, SUBSCRIBE, "in/#") is False
    assert acl(engine, SUBSCRIBE, "$share/group/in/+") is True
    assert acl(engine, SUBSCRIBE, "$share/group/#") is False
    assert acl(engine, SUBSCRIBE, "#") is False
    assert acl(engine, 8, "anything") is True


def test_missing_or_malformed_lists_allow_nothing(engine):
    start(engine, "JwtAcl")
    assert engine.login("ann", token(publ="out/#", subs=[1, None])) == LET_IN
    assert acl(engine, WRITE, "out/x") is False
    assert acl(engine, READ, "x") is False


def test_clients_without_a_token_are_left_to_other_plugins(engine):
    start(engine, "JwtAcl")
    assert acl(engine, READ, "x") is None


def plugin_of_few(monkeypatch, most=2, **options):
    for name in ("CONNECTED_BYTES_MAX", "OTHERS_BYTES_MAX"):
        monkeypatch.setattr(mosq.auth.jwt, name, (most + 1) * 1024)
    return JwtAcl({"algorithms": "HS256", "secret": SECRET, **options})


def let_in(plugin, client_id, user="ann", **claims):
    assert plugin.authenticate(ConnectRequest(client_id, user, token(sub=user, **claims), "", 0, 5, None)) == ALLOW


def decision(plugin, client_id, topic, user="ann"):
    return plugin.authorize(AclRequest(client_id, user, "", WRITE, topic, 0, False, None)).decision


def test_rights_that_were_removed_are_denied_and_not_left_to_others(monkeypatch):
    plugin = plugin_of_few(monkeypatch)
    for i in range(5):
        let_in(plugin, f"c{i}", publ=["a"])
    assert [decision(plugin, f"c{i}", "a") for i in range(5)] == ["deny"] * 3 + ["allow"] * 2
    assert decision(plugin, "other", "a", user="ben") == "defer"
    let_in(plugin, "c0", publ=["a"])
    assert decision(plugin, "c0", "a") == "allow"


def test_connected_clients_keep_their_rights_beside_many_logins(monkeypatch):
    plugin = plugin_of_few(monkeypatch)
    let_in(plugin, "c", publ=["a"])
    plugin.connected(ClientEvent("c", "ann", ""))
    for i in range(10):
        let_in(plugin, f"c{i}", publ=["a"])
    assert (decision(plugin, "c", "a"), decision(plugin, "c", "b")) == ("allow", "deny")


@pytest.mark.parametrize("order", ["dc", "cd"])
def test_rights_survive_a_take_over_in_either_order_of_events(monkeypatch, order):
    plugin = plugin_of_few(monkeypatch)
    event = ClientEvent("c", "ann", "")
    let_in(plugin, "c", publ=["a"])
    plugin.connected(event)
    let_in(plugin, "c", publ=["b"])
    for kind in order:
        (plugin.connected if kind == "c" else plugin.disconnected)(event)
    for i in range(10):
        let_in(plugin, f"c{i}", publ=["a"])
    assert (decision(plugin, "c", "b"), decision(plugin, "c", "a")) == ("allow", "deny")
    plugin.disconnected(event)
    for i in range(10, 20):
        let_in(plugin, f"c{i}", publ=["a"])
    assert decision(plugin, "c", "b") != "allow"


def test_long_client_ids_cost_no_memory():
    plugin = JwtAcl({"algorithms": "HS256", "secret": SECRET})
    tracemalloc.start()
    try:
        for i in range(100):
            let_in(plugin, f"{i}\N{GRINNING FACE}" + "x" * 65_000, publ=["m/%c/#"] * 100)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000             # the names alone have 26 MB in memory


@pytest.mark.parametrize("ends", [True, False])
def test_the_bytes_of_rights_are_bounded(monkeypatch, ends):
    monkeypatch.setattr(mosq.auth.rights, "REMOVED_BITS", 1 << 10)
    plugin = plugin_of_few(monkeypatch, most=100)
    tracemalloc.start()
    try:
        for i in range(200):
            event = ClientEvent(f"c{i}", "ann", "")
            let_in(plugin, f"c{i}", publ=[f"{i}/" + "\N{GRINNING FACE}" * 2000])
            plugin.connected(event)
            if ends:
                plugin.disconnected(event)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 500_000               # all claims have 1.6 MB
    assert decision(plugin, "c0", "a") == "deny"
    assert decision(plugin, "c199", "199/" + "\N{GRINNING FACE}" * 2000) == "allow"


@given(st.lists(st.tuples(st.sampled_from(("let_in", "connected", "disconnected", "authorize")), st.integers(0, 5),
                          st.integers(0, 2), st.sampled_from(("a", "b"))), max_size=60))
def test_the_tables_of_rights_count_right_and_never_defer(steps):
    """A client whose token was accepted is never left to others, whatever happened to its rights."""
    plugin, accepted = JwtAcl({"algorithms": "HS256", "secret": SECRET}), set()
    tables = plugin._connected, plugin._others
    for table in tables:
        table._bytes_max = 6000
    for step, client, user, filter in steps:
        who = f"c{client}", f"u{user}"
        if step == "let_in":
            plugin.let_in(ConnectRequest(*who, b"", "", 0, 4, None), {"publ": [filter]})
            accepted.add(who)
        elif step == "authorize":
            assert decision(plugin, who[0], "c", who[1]) == "deny" or who not in accepted
        else:
            getattr(plugin, step)(ClientEvent(*who, ""))
        for table in tables:
            counts = {user: len(clients) for user, clients in table._users.items()}
            held = {rights.claims for clients in table._users.values() for rights in clients.values()}
            assert table.bytes == sum(counts.values()) * 1024 + len(held) * 513 <= 6000
            assert counts == {user: n for n, users in table._ranks.items() for user in users}
            assert table._most == max(counts.values(), default=0) and 0 not in counts.values()
            assert table._claims.keys() == held


def test_the_user_with_most_clients_makes_room(monkeypatch):
    """Test an attack: many logins with one token. The offline session of another user keeps its rights."""
    plugin, event = plugin_of_few(monkeypatch, most=10), ClientEvent("c", "ann", "")
    let_in(plugin, "c", publ=["a"])
    plugin.connected(event)
    plugin.disconnected(event)
    for i in range(50):
        let_in(plugin, f"c{i}", user="mallory", publ=["a"])
    assert decision(plugin, "c", "a") == "allow"
    assert decision(plugin, "c0", "a", user="mallory") == "deny"


def test_rights_of_an_offline_session_that_were_removed_are_denied(monkeypatch):
    plugin, event = plugin_of_few(monkeypatch), ClientEvent("c", "ann", "")
    let_in(plugin, "c", publ=["a"])
    plugin.connected(event)
    plugin.disconnected(event)
    for i in range(10):
        let_in(plugin, f"c{i}", publ=["a"])
    assert decision(plugin, "c", "a") == "deny"


def test_many_removals_of_one_user_deny_no_other(monkeypatch):
    """Test an attack: tokens that log in and never connect. One bit for each login denied clients of other plugins."""
    monkeypatch.setattr(mosq.auth.rights, "REMOVED_BITS", 1 << 10)
    plugin = plugin_of_few(monkeypatch)
    for i in range(2000):
        plugin.let_in(ConnectRequest(f"c{i}", "mallory", b"", "", 0, 4, None), {})
    assert [decision(plugin, f"d{i}", "a", user=f"user{i}") for i in range(100)] == ["defer"] * 100


def test_long_names_in_claims_make_no_long_filters():
    plugin, client_id = JwtAcl({"algorithms": "HS256", "secret": SECRET}), "x" * 65_000
    tracemalloc.start()
    try:
        let_in(plugin, client_id, publ=["/".join(["%c"] * 1000)])
        assert decision(plugin, client_id, "a") == "deny"
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 5_000_000             # the filter with its names would have 65 MB


@pytest.mark.parametrize("filter", ["\ud800", "a\0b", ""])
def test_claims_that_are_no_filters_allow_nothing(filter):
    plugin = JwtAcl({"algorithms": "HS256", "secret": SECRET})
    let_in(plugin, "c", publ=[filter, "x"])
    assert [decision(plugin, "c", topic) for topic in ("a", "b", "x")] == ["deny", "deny", "allow"]


def test_a_reload_keeps_rights_and_refuses_bad_options(monkeypatch):
    plugin, lines = plugin_of_few(monkeypatch), []
    plugin.broker = SimpleNamespace(log=lines.append)
    let_in(plugin, "c", publ=["a"])
    plugin.reload({"algorithms": "HS256", "secret": "t" * 32})
    assert (decision(plugin, "c", "a"), decision(plugin, "c", "b")) == ("allow", "deny")
    assert plugin.authenticate(ConnectRequest("d", "ann", token(), "", 0, 5, None)) == DENY
    plugin.reload({"algorithms": "HS256", "secret": "short"})
    assert "the secret has 5 bytes" in lines[0]
    assert plugin.authenticate(ConnectRequest("d", "ann", token(key="t" * 32), "", 0, 5, None)) == ALLOW


def test_a_reload_with_other_options_leaves_no_connected_client_to_others(engine):
    start(engine, "JwtAcl")
    assert engine.login("ann", token(publ=["a"])) == LET_IN
    before, line = engine.access, plugin_line("python:mosq.auth.jwt:JwtAcl", algorithms="HS256", secret="t" * 32)
    engine.access = before.reload(config_of(None, [line], auth_backoff=False))
    before.close()
    assert (acl(engine, WRITE, "a"), acl(engine, WRITE, "b")) == (True, False)


def test_a_name_cannot_widen_its_rights(engine):
    start(engine, "JwtAcl")
    engine.login("#", token(sub="#", subs=["in/%u"]))
    assert acl(engine, READ, "in/ann", user="#") is not True


@pytest.mark.parametrize(("claim", "name"), [("%u/#", "$SYS"), ("%u/mosq/#", "$CONTROL"), ("%u", "$SYS")])
def test_a_name_gives_no_right_to_system_topics(engine, claim, name):
    start(engine, "JwtAcl")
    assert engine.login(name, token(sub=name, publ=[claim], subs=[claim])) == LET_IN
    for topic in (f"{name}/broker/version", f"{name}/mosq/broker/v1", name):
        for access in (READ, WRITE, SUBSCRIBE):
            assert acl(engine, access, topic, user=name) is False


_levels = st.lists(st.sampled_from(("a", "b", "+")), min_size=1, max_size=3)
_filters = st.tuples(_levels, st.booleans()).map(lambda x: "/".join([*x[0], *(["#"] if x[1] else [])]))
_topics = st.lists(st.sampled_from(("a", "b", "")), min_size=1, max_size=4).map("/".join)


@given(_filters, _filters, _topics)
def test_a_covering_filter_matches_every_covered_topic(own, asked, topic):
    own_levels, asked_levels = tuple(own.split("/")), tuple(asked.split("/"))
    if covers(own_levels, asked) and matches(asked_levels, topic):
        assert matches(own_levels, topic)


@pytest.mark.again("properties")
@settings(max_examples=tries(2000, 200))
@given(st.sampled_from(test_acl.NAMES), st.sampled_from(test_acl.NAMES), st.lists(test_acl.patterns, max_size=4),
       st.lists(test_acl.topics, min_size=1, max_size=4), test_acl.filters)
def test_claims_give_the_rights_of_patterns(user, client_id, claim, topics, subscribed):
    """A name that could act as a part of a filter is not filled in: its claims are plain rules."""
    plugin = JwtAcl({"algorithms": "HS256", "secret": SECRET})
    plugin.let_in(ConnectRequest(client_id, user, b"", "", 0, 4, None), {"publ": claim, "subs": claim})
    kind, who = ("topic", user) if set("+#/") & set(user + client_id) else ("pattern", None)
    model = acl_model.Model([(who, kind, "readwrite", filter) for filter in claim])
    for topic in topics:
        for access, wanted in ((WRITE, "write"), (READ, "read")):
            allowed = plugin.authorize(AclRequest(client_id, user, "", access, topic, 0, False, None)) == ALLOW
            assert allowed == model.allows(user, client_id, topic, wanted), (topic, wanted)
    allowed = plugin.authorize(AclRequest(client_id, user, "", SUBSCRIBE, subscribed, 0, False, None)) == ALLOW
    covered = any(acl_model.covers(filter, subscribed) for part in model.parts(user, client_id) for _, filter in part)
    assert covered or not allowed
    assert allowed == covered or "#" in subscribed          # the claim +/# does not cover #
