import pytest
from hypothesis import given, strategies as st

from mosq.auth.hashes import PBKDF2, SHA512, new_hash
from mosq.auth.password_file import load_passwords, parse_passwords
from mosq.config.errors import ConfigError, Origin

HASH = new_hash(PBKDF2, b"pw", 1)


def parse(text):
    return parse_passwords(text if isinstance(text, bytes) else text.encode(), "passwd")


def test_users_comments_blank_lines_and_crlf():
    users = parse(f"\ufeff# comment with ann:{HASH}\r\n\r\nann:{HASH}\r\n   \n  ben : {HASH} \njosé:{HASH}")
    assert list(users.hashes) == ["ann", "ben", "josé"]
    assert all(hash.matches(b"pw") for hash in users.hashes.values())
    assert users.warnings == []


def test_text_after_a_second_colon_is_ignored_and_colons_are_merged():
    assert parse(f"ann:{HASH}:gid:more\n:ben::{HASH}").hashes.keys() == {"ann", "ben"}


def test_a_line_without_a_colon_is_skipped_with_a_warning():
    users = parse(f"hello\nann:{HASH}\n" + "x\n" * 20)
    assert list(users.hashes) == ["ann"]
    assert "passwd:1 " in users.warnings[0]
    assert len(users.warnings) == 11


@pytest.mark.parametrize(("text", "line", "says"), [
    (f"ann:{HASH}\n\nann:{HASH}", 3, "Duplicate user 'ann'"),
    ("ann:secret-in-plain", 1, "mosq passwd -U FILE"),
    ("# x\nann:", 2, "Error: Unable to decode line in password file 'passwd': user 'ann' has no hash"),
    ("ann:   ", 1, "has no hash"),
    (f":{HASH}", 1, "Error: Invalid line in password file 'passwd': the user name is empty"),
    (f"  :{HASH}", 1, "Invalid line in password file 'passwd': the user name is empty"),
    ("::", 1, "the user name is empty"),
    ("ann:$", 1, "Error: Unable to decode line in password file 'passwd': the hash of user 'ann'"),
    ("ann:$5$salt$secret", 1, "Unable to decode line in password file"),
    ("ann:$7$1000$secret", 1, "cannot be used"),
    (b"\xff\xfe:x", 1, "not UTF-8"),
    (b"a" * 70000 + b":x", 1, "longer than 65535"),
])
def test_errors_name_the_line_and_show_no_secret(text, line, says):
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert (error.value.origin.file, error.value.origin.line) == ("passwd", line)
    assert says in str(error.value)
    assert "secret" not in str(error.value)


def test_an_error_for_a_missing_file_names_the_line_of_its_option(tmp_path):
    with pytest.raises(ConfigError) as error:
        load_passwords(str(tmp_path / "none"), Origin("mosq.conf", 7))
    assert "No such file" in str(error.value)
    assert "mosq.conf:7" in str(error.value)


def test_a_world_readable_file_causes_a_warning(tmp_path):
    path = tmp_path / "passwd"
    path.write_text(f"ann:{HASH}\n")
    path.chmod(0o644)
    assert "world readable" in load_passwords(str(path)).warnings[0]
    path.chmod(0o640)
    assert load_passwords(str(path)).warnings == []


def test_the_decoy_costs_as_much_as_most_hashes():
    cheap, dear = new_hash(SHA512, b"a"), new_hash(PBKDF2, b"a", 5)
    users = parse(f"a:{cheap}\nb:{dear}\nc:{dear.replace('$7$5$', '$7$5$')}")
    assert (users.decoy.kind, users.decoy.iterations) == (PBKDF2, 5)
    assert parse("").decoy is None


@given(st.binary(max_size=200))
def test_any_bytes_are_a_file_or_a_config_error(content):
    try:
        users = parse(content)
    except ConfigError as error:
        assert error.origin is not None
        return
    assert all(isinstance(name, str) and name for name in users.hashes)


@given(st.lists(st.text(st.characters(exclude_characters=":", exclude_categories=("Cs", "Cc", "Z")), min_size=1)
                .filter(lambda name: not name.startswith(("#", "\ufeff"))), unique=True, max_size=10))
def test_every_user_that_is_written_is_read(names):
    assert list(parse("".join(f"{name}:{HASH}\n" for name in names)).hashes) == names
