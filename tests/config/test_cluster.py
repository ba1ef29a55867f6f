"""Test the options of a node of a cluster: their values, their contradictions, and that no text shows the password."""

from __future__ import annotations

import pytest

from mosq.config.change import changes
from mosq.config.cluster import address_of, listener_of
from mosq.config.files import pointers

NODE = ("cluster redis://redis.example:6380/2", "cluster_node a", "persistence true")
SECRET = "cluster_secret_file /etc/mosq/secret"


def test_a_node_has_an_address_of_redis_a_name_and_a_listener(read):
    config = read("cluster redis://ann:p%40ss@one,two:7000/1", "cluster_node a.1", "persistence true", "cluster_name site-7",
                  "cluster_listener 1885 192.0.2.7", SECRET, "cluster_capacity 3", "cluster_reference a:1 b:2")
    assert address_of(config).hosts == (("one", 6379), ("two", 7000))
    assert (address_of(config).user, address_of(config).password, address_of(config).db) == ("ann", "p@ss", 1)
    assert (config.cluster_node, config.cluster_name, config.cluster_capacity) == ("a.1", "site-7", 3)
    assert listener_of(config) == ("192.0.2.7", 1885)
    assert config.cluster_reference == "a:1 b:2"


def test_a_file_has_the_password_of_redis(read, tmp_path):
    path = tmp_path / "password"
    config = read("cluster redis://ann@host", "cluster_node a", "persistence true", f"cluster_password_file {path}")
    assert (address_of(config).user, address_of(config).password) == ("ann", None)
    path.write_text("hush\n")
    path.chmod(0o604)
    [pointer] = [one for one in pointers(config) if one.option == "cluster_password_file"]
    assert pointer.open_to_all


def test_a_node_listens_to_no_other_node_by_default(read):
    assert listener_of(read(*NODE)) is None
    assert listener_of(read(*NODE, "cluster_listener 1885", SECRET)) == ("", 1885)


@pytest.mark.parametrize(("lines", "line", "text"), [
    (("cluster http://host", "cluster_node a", "persistence true"), 1, "Invalid 'cluster' value: the address of Redis begins with"),
    (("cluster rediss://host", "cluster_node a", "persistence true"), 1, "use a tunnel such as stunnel"),
    (("cluster redis+unix:///run/redis.sock", "cluster_node a", "persistence true"), 1, "no unix socket"),
    (("cluster redis://host", "persistence true"), 1, "Expected a line `cluster_node NAME`"),
    (("cluster redis://host", "persistence true", "cluster_node a b"), 3, "Invalid 'cluster_node' value (a b)"),
    (("cluster redis://:x@host", "cluster_node a", "persistence true", "cluster_password_file f"), 1, "there is a file with a password too"),
    ((*NODE, "cluster_name {x}"), 4, "Invalid 'cluster_name' value ({x})"),
    ((*NODE, "cluster_listener 0"), 4, "Invalid 'cluster_listener' value (0). Expected a port from 1 to 65535"),
    ((*NODE, "cluster_listener 1885 host more"), 4, "Invalid 'cluster_listener' value"),
    ((*NODE, "cluster_listener 1885"), 4, "Expected a line `cluster_secret_file FILE`"),
    ((*NODE, "cluster_local 2"), 4, "`mosq cluster create --workers N` fixes the number of workers"),
    (("cluster redis://host", "cluster_node a"), 1, "Expected `persistence true` as well"),
    (("cluster redis://host", "cluster_node a", "persistence false"), 3, "Expected `persistence true` as well"),
    ((*NODE, "durability none"), 4, "Expected a durability other than none as well"),
    ((*NODE, "stream s a/#"), 4, "'stream' of a node needs a limit"),
    ((*NODE, "stream_events true"), 4, "'stream_events' of a node needs a limit"),
    ((*NODE, "mosquitto_db true"), 4, "'mosquitto_db true' cannot be used with 'cluster' yet"),
    ((*NODE, "plugin persist-sqlite"), 4, "The plugin 'persist-sqlite' cannot be used with 'cluster' yet"),
    ((*NODE, "connection b", "address h", "topic #", "local_clientid l"), 4, "Expected lines `local_clientid ID` and `remote_clientid ID`"),
])
def test_what_a_node_cannot_have_is_an_error_with_its_line(refuse, lines, line, text):
    assert text in refuse(*lines, line=line)


def test_a_node_may_have_dynamic_security(read):
    assert read(*NODE, "dynamic_security /etc/mosq/d.json").warnings == []


def test_the_options_of_a_node_have_no_effect_without_a_cluster(read):
    config = read("cluster_node a", "cluster_capacity 2")
    assert [warning.split(" ")[0] for warning in config.warnings] == ["'cluster_node'", "'cluster_capacity'"]


def test_no_text_shows_the_password_of_redis(read, refuse):
    said = refuse("cluster redis://ann:hush/@host", "cluster_node a", "persistence true", line=1)
    assert "hush" not in said
    before, after = (read(f"cluster redis://:{word}@host", "cluster_node a", "persistence true") for word in ("hush", "other"))
    shown = [str(change) for change in changes(before, after)]
    assert len(shown) == 1 and "hush" not in shown[0] and "other" not in shown[0]
