"""Test which stores in Redis are taken for damaged (mosq/cluster/stores.py)."""

from __future__ import annotations

import pytest

from mosq.cluster.stores import damage_of, store_of

KEYS = "mosq:{c:12345678:1}:"
LOCK, SEGMENT = [b"/store/lock", b"1", 0, []], [b"/store/segment.000001", b"3", 5, [b"id", b"1", b"0", b"0"]]
SIZE_OF_SEGMENT = [KEYS.encode() + b"f:3", b"5"]


def damage(number: bytes, sizes: list[bytes], files: list[list[object]], gone: list[bytes] | None = None,
           sized: bytes | None = None) -> str:
    head = [b"token", b"1", b"number", number, b"sized", b"1 " + number if sized is None else sized, *sizes]
    return damage_of(store_of([head, gone or [], files]), "c", "123456789", 1)


@pytest.mark.parametrize(("number", "sizes", "files"), [
    (b"0", [], []),
    (b"1", [], [LOCK]),
    (b"2", [], [LOCK, [*SEGMENT[:2], 0, []]]),              # its process ended during its first start
    (b"9", SIZE_OF_SEGMENT, [LOCK, SEGMENT]),
    (b"9", [SIZE_OF_SEGMENT[0], b"4"], [LOCK, SEGMENT]),
    (b"9", [*SIZE_OF_SEGMENT, KEYS.encode() + b"f:1", b"6"], [LOCK, SEGMENT]),      # the content of the lock was deleted
    (b"9", [], [LOCK, SEGMENT]),                            # an operator goes on with the rest
])
def test_a_whole_store_is_not_damaged(number: bytes, sizes: list[bytes], files: list[list[object]]) -> None:
    assert damage(number, sizes, files) == ""


def test_an_open_file_without_a_name_is_no_damage() -> None:
    assert damage(b"9", SIZE_OF_SEGMENT, [LOCK], [SIZE_OF_SEGMENT[0]]) == ""


@pytest.mark.parametrize(("number", "sizes", "files", "text"), [
    (b"1", [], [], f"the key {KEYS}names was deleted"),
    (b"9", SIZE_OF_SEGMENT, [], f"the key {KEYS}names was deleted"),
    (b"9", SIZE_OF_SEGMENT, [LOCK], f"the name of {KEYS}f:3 was deleted from {KEYS}names"),
    (b"9", SIZE_OF_SEGMENT, [LOCK, [*SEGMENT[:2], 0, []]], f"the key {KEYS}f:3 was deleted"),
    (b"9", SIZE_OF_SEGMENT, [LOCK, [*SEGMENT[:2], 4, []]], f"the key {KEYS}f:3 has 4 bytes, and had 5"),
])
def test_a_store_that_lacks_a_part_is_damaged(number: bytes, sizes: list[bytes], files: list[list[object]], text: str) -> None:
    found = damage(number, sizes, files)
    assert found.startswith(f"the store of worker 1 in Redis is damaged: {text}, with acknowledged messages. Restore the data of Redis;")
    assert f"delete all keys {KEYS}*, also while the worker runs, then redis-cli HDEL 'mosq:{{c}}:cluster' 'store 1'" in found
    assert found.endswith(f"to go on with the rest: redis-cli HDEL '{KEYS}head' '{KEYS}f:3'") == ("bytes" in text)


@pytest.mark.parametrize(("field", "value"), [(b"number", b""), (b"number", b"nine"), (b"number", b"-1"), (b"number", b"9" * 5000), (b"token", b"")])
@pytest.mark.parametrize("files", [[], [LOCK, SEGMENT]])
def test_a_store_whose_head_lacks_a_number_is_damaged(field: bytes, value: bytes, files: list[list[object]]) -> None:
    fields = {b"token": b"1", b"number": b"9", b"sized": b"1 9"}
    fields = {name: text for name, text in {**fields, field: value}.items() if text}
    found = damage_of(store_of([[part for pair in fields.items() for part in pair], [], files]), "c", "123456789", 1)
    assert found.startswith(f"the store of worker 1 in Redis is damaged: the field {field.decode()} of the key {KEYS}head was deleted or changed, "
                            "with acknowledged messages. Restore the data of Redis;")


@pytest.mark.parametrize("sized", [b"", b"1 8", b"0 9"])
@pytest.mark.parametrize(("sizes", "files"), [
    (SIZE_OF_SEGMENT, [LOCK]),                              # a process of an older version has removed the segment, and noted no length
    ([SIZE_OF_SEGMENT[0], b"6"], [LOCK, SEGMENT]),
    ([b"%bf:1" % KEYS.encode(), b"6"], [[*LOCK[:2], 4, []], SEGMENT]),
])
def test_lengths_that_the_last_operation_has_not_noted_do_not_count(sizes: list[bytes], files: list[list[object]], sized: bytes) -> None:
    assert damage(b"9", sizes, files, sized=sized) == ""
    store = store_of([[b"token", b"1", b"number", b"9", b"sized", sized, *sizes], [], files])
    assert list(store.cuts("c:12345678:1")) == [] and store.unnamed("c:12345678:1") == []      # `mosq cluster check` asks for them


def test_without_lengths_a_store_whose_segments_have_no_content_is_damaged() -> None:
    assert f"the key {KEYS}f:3 was deleted" in damage(b"9", [], [LOCK, [*SEGMENT[:2], 0, []]], sized=b"")
    assert damage(b"8", [], [LOCK, [*SEGMENT[:2], 0, []]], sized=b"") == ""      # its process ended during its first start


def test_a_store_without_its_head_was_deleted() -> None:
    assert damage_of(store_of([[], [], []]), "c", "123456789", 1) == (
        f"Redis has no store of worker 1 any more, and it had one: the keys {KEYS}* were deleted, with acknowledged messages. Restore the data of Redis; "
        f"to go on without them, with an empty store: delete all keys {KEYS}* that are left, also while the worker runs, then "
        "redis-cli HDEL 'mosq:{c}:cluster' 'store 1'")
