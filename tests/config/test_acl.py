"""Test the reading of an acl_file: the rules in order, and errors with file and line."""

import pytest

from mosq.config.acl import load_acl
from mosq.config.errors import ConfigError, Origin


def load(tmp_path, text):
    path = tmp_path / "rules.acl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_acl(str(path))


def test_rules_in_the_order_of_the_file(tmp_path):
    assert load(tmp_path, """\
# for everybody without a name
topic read news/#

user ann
topic a b/c
topic write cmd/+/x
 topic\tdeny   cmd/secret
pattern readwrite home/%u/%c
user bob
topic readwrite #
user ann
topic read $SYS/#""") == [
        (None, "topic", "read", "news/#"),
        ("ann", "topic", "readwrite", "a b/c"),
        ("ann", "topic", "write", "cmd/+/x"),
        ("ann", "topic", "deny", "cmd/secret"),
        (None, "pattern", "readwrite", "home/%u/%c"),
        ("bob", "topic", "readwrite", "#"),
        ("ann", "topic", "read", "$SYS/#"),
    ]


def test_crlf_mark_utf8_and_names_with_blanks(tmp_path):
    text = "\ufeffuser Jürgen von X \r\ntopic räume/#\r\n\r\n"
    assert load(tmp_path, text) == [("Jürgen von X", "topic", "readwrite", "räume/#")]


def test_an_empty_file_has_no_rules(tmp_path):
    assert load(tmp_path, "") == []
    assert load(tmp_path, "# nothing\n") == []


@pytest.mark.parametrize(("line", "expected"), [
    ("user", "expected `user NAME`"), ("topic", "Empty 'topic'"), ("topic read", "Empty 'topic'"),
    ("pattern write  ", "Empty 'pattern'"), ("allow x", "expected user, topic or pattern"),
    ("topic a/#/b", "is not a filter"), ("topic read a/b#", "is not a filter"), ("topic a+/b", "is not a filter"),
    (b"topic caf\xe9", "not UTF-8"), (b"topic a\0b", "zero byte"), ("topic " + "x" * 65536, "longer than 65535 bytes"),
])
def test_mistakes_name_file_line_and_expected_value(tmp_path, line, expected):
    raw = line if isinstance(line, bytes) else line.encode()
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, b"# rules\ntopic ok\n" + raw + b"\n")
    said, where = str(caught.value).split("\n")
    assert expected in said
    assert where == f"Error found at {tmp_path}/rules.acl:3."


def test_a_password_file_given_by_mistake_is_not_shown(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "ann:$7$101$salt$hash\n")
    assert "$7$" not in str(caught.value)


def test_a_missing_file_names_the_option_that_named_it(tmp_path):
    with pytest.raises(ConfigError, match=r"Unable to open acl_file '.+': No such file.+\nError found at m.conf:7\."):
        load_acl(str(tmp_path / "none"), Origin("m.conf", 7))
