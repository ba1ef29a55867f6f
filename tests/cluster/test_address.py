"""Test the address of Redis (mosq/cluster/address.py): its forms, its errors, and that no text shows a password."""

from __future__ import annotations

import pytest

from mosq.cluster.address import Address, parse_address

FORMS = {
    "redis://h": (Address((("h", 6379),)), "redis://h:6379/0"),
    "redis://h:1/2": (Address((("h", 1),), db=2), "redis://h:1/2"),
    "redis://a,b:7,[::1]:8,[::2]": (Address((("a", 6379), ("b", 7), ("::1", 8), ("::2", 6379))), "redis://a:6379,b:7,[::1]:8,[::2]:6379/0"),
    "redis://u:p%40%2F%3A@h/": (Address((("h", 6379),), user="u", password="p@/:"), "redis://h:6379/0"),
    "redis://:p-w@h": (Address((("h", 6379),), password="p-w"), "redis://h:6379/0"),
    "redis://u:a@b@h": (Address((("h", 6379),), user="u", password="a@b"), "redis://h:6379/0"),
    "rediss://h": (Address((("h", 6379),), tls=True), "rediss://h:6379/0"),
    "redis+sentinel://a,b:9/main": (Address((("a", 26379), ("b", 9)), master="main"), "redis+sentinel://a:26379,b:9/main/0"),
    "rediss+sentinel://u:p-w@a/main/3": (Address((("a", 26379),), master="main", db=3, tls=True, user="u", password="p-w"),
                                       "rediss+sentinel://a:26379/main/3"),
    "redis+unix:///run/r.sock": (Address(path="/run/r.sock"), "redis+unix:///run/r.sock?db=0"),
    "redis+unix://:p-w@/run/r.sock?db=4": (Address(path="/run/r.sock", db=4, password="p-w"), "redis+unix:///run/r.sock?db=4"),
}
WRONG = {
    "h:1": "begins with redis://",
    "http://h": "begins with redis://",
    "redis://": "a host in the address of Redis is empty",
    "redis://a,,b": "a host in the address of Redis is empty",
    "redis://:secret@:1": "a host in the address of Redis is empty",
    "redis://h:0": "the port of Redis at h",
    "redis://h:65536": "the port of Redis at h",
    "redis://h:１": "the port of Redis at h",
    "redis://h:": "the port of Redis at h",
    "redis://[::1": "in brackets",
    "redis://[::1]6379": "in brackets",
    "redis://::1": "a host in the address of Redis is empty",
    "redis://h/x": "the number of the database",
    "redis://h/-1": "the number of the database",
    "redis://h/1/2": "the number of the database",
    "redis://h?db=1": "a '?' or '#'",
    "redis://:secret#1@h#x": "a '?' or '#'",
    "redis://u@h": "a user without a password",
    "redis://u:@h": "the password in the address of Redis is empty",
    "redis://u:secret/x@h": "write it as %2F",
    "redis+sentinel://a": "the name of the primary",
    "redis+sentinel://a//1": "the name of the primary",
    "redis+unix://run/r.sock": "begins with /",
    "redis+unix:///r?x=1": "only ?db=NUMBER",
}


@pytest.mark.parametrize("text", FORMS)
def test_a_form_is_read_and_shown_without_a_password(text: str) -> None:
    address, shown = FORMS[text]
    assert parse_address(text) == address
    assert str(address) == shown
    assert address.password is None or address.password not in repr(address)


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_address_is_refused_with_a_reason_that_shows_no_password(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_address(text)
    assert WRONG[text] in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_file_has_the_password(tmp_path) -> None:
    file = tmp_path / "password"
    file.write_bytes("pässword\r\nother\n".encode())
    assert parse_address("redis://h", str(file)).password == "pässword"
    with pytest.raises(ValueError, match="there is a file with a password too"):
        parse_address("redis://:secret@h", str(file))
    with pytest.raises(OSError, match="missing"):
        parse_address("redis://h", str(tmp_path / "missing"))
    for content, reason in ((b"", "is empty"), (b"\nsecret\n", "is empty"), (b"secret\xff\n", "is not UTF-8")):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=reason) as caught:
            parse_address("redis://h", str(file))
        assert "secret" not in str(caught.value)


def test_a_user_may_stand_in_the_address_with_the_password_in_a_file(tmp_path) -> None:
    assert parse_address("redis://u@h", "missing", reads=False) == Address((("h", 6379),), user="u")
    (tmp_path / "password").write_text("p\n")
    address = parse_address("redis://u@h", str(tmp_path / "password"))
    assert (address.user, address.password) == ("u", "p")
