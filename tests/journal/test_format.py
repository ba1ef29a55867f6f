"""Test the bytes of a stream's files against the tables of docs/journal.md, also with each byte flipped or cut off."""

from __future__ import annotations

import struct

import pytest

from mosq._core import PyJournal, consumer_mark, consumers, marks, shard_of
from mosq._core import crc
from tests.journal.disk import DIR, FolderDisk, Stream, first_of
from tests.journal.naive import HEAD, blocks_of, extended_crc, file, head_of, mark_of, salted

FIRST = f"000-{0:020}-{1:020}.seg"


@pytest.fixture
def stream() -> Stream:
    return Stream(FolderDisk(), 1, segment_bytes=1 << 20)


def flips(disk: FolderDisk, name: str, places):
    """Yield after making each of these bytes wrong once."""
    data = disk.files[f"{DIR}/{name}"].data
    for at in places:
        data[at] ^= 0x41
        yield at
        data[at] ^= 0x41


# ---- as written

def test_a_segment_has_two_heads_and_then_blocks(stream: Stream) -> None:
    face = stream.face
    face.append(0, topic=b"a/b", client_id=b"c1", username=b"u", properties=b"\x01\x00", payload=b"12345", flags=1 | 4 | 8, time_us=5000)
    face.append(0, kind=3, topic=b"", client_id=b"c2", reason=0x8E, time_us=5070)
    stream.write()
    face.append(0, topic=b"z", username=b"", payload=b"", time_us=4000)
    face.seal()
    assert face.write(7777)
    data = file(stream.disk, FIRST)
    head = head_of(data)
    assert head == head_of(data, 2048)
    assert (head["shard"], head["shards"], head["base"], head["number"], head["time"]) == (0, 1, 0, 1, 0)
    (at, first, records), (_, second, more) = blocks_of(data)
    assert (at, first["first"], first["count"], first["time"], first["span"]) == (HEAD, 0, 2, 5000, 70)
    assert records == [(1, 29, 0, 0, b"a/b", b"c1", b"u", b"\x01\x00", b"12345"), (3, 0, 0x8E, 70, b"", b"c2", b"", b"", b"")]
    assert (second["first"], second["count"], second["time"], second["commit"]) == (2, 1, 4000, 7777)
    assert more == [(1, 16, 0, 0, b"z", b"", b"", b"", b"")]


def nodes_of(stream: Stream) -> list[tuple[str | None, list[int]]]:
    """Read the stream, and return the numbers of the records of each call with the node that the reader names for them."""
    reader, found = stream.reader(), []
    while records := reader.read():
        found.append((reader.node, [record[0] for record in records]))
    return found


def test_a_segment_names_the_node_of_all_its_records() -> None:
    stream = Stream(FolderDisk(), 1, segment_bytes=1 << 20)
    for _ in range(3):
        stream.fill(2)
        stream.append()
        stream.write()          # behind the mark: the next start, which is another node's, writes it again
        stream.kill()
        stream.open()
    stream.fill(1)
    assert nodes_of(stream) == [(None, [0, 1, 2]), ("node.1", [3, 4, 5]), ("node.2", [6, 7, 8]), ("node.3", [9])]
    heads = [head_of(file(stream.disk, name.rsplit("/", 1)[1])) for name in stream.disk.segments()]
    assert [(head["base"], head["node"]) for head in heads] == [(0, ""), (2, ""), (3, "node.1"), (5, "node.1"), (6, "node.2"), (8, "node.2"), (9, "node.3")]
    reader, columns = stream.reader(), []
    while (got := reader.columns())[0]:
        columns.append((reader.node, got[0]))
    assert columns == [(None, 3), ("node.1", 3), ("node.2", 3), ("node.3", 1)]
    stream.check()


def test_one_copy_of_the_name_is_enough_and_records_without_one_are_read() -> None:
    stream = Stream(FolderDisk(), 1, segment_bytes=1 << 20)
    stream.kill()
    stream.open()
    stream.fill(2)
    name = stream.disk.segments()[0].rsplit("/", 1)[1]
    data = stream.disk.files[f"{DIR}/{name}"].data
    for _ in flips(stream.disk, name, [*range(88, 160), *range(2048 + 88, 2048 + 160)]):
        assert nodes_of(stream) == [("node.1", [0, 1])]
    for copy in (0, 2048):
        data[copy + 88:copy + 160] = bytes(72)          # as an earlier version has written it
    assert nodes_of(stream) == [(None, [0, 1])]
    for copy in (0, 2048):                              # a name of no possible length, and one with a wrong check
        data[copy + 88:copy + 160] = struct.pack("<II64s", 0, 65 if copy else 6, b"node.1")
    assert nodes_of(stream) == [(None, [0, 1])]


def test_the_mark_names_the_synced_records(stream: Stream) -> None:
    stream.append()
    stream.write()
    slots = [mark_of(file(stream.disk, "mark.a"))]      # written when the stream was opened
    stream.face.mark()
    assert f"{DIR}/mark.b" not in stream.disk.files     # no new record is on the disk
    stream.face.sync()
    stream.face.mark(99)
    slots.append(mark_of(file(stream.disk, "mark.b")))
    assert [slot["generation"] for slot in slots] == [1, 2]
    assert slots[0]["shards"] == [(0, 0, 0, 0, 0, 1)]
    assert slots[1]["shards"] == [(0, 1, 1, len(file(stream.disk, FIRST)), stream.clock_us, 1)]
    assert slots[1]["made"] == 99
    assert slots[1]["stream"] == head_of(file(stream.disk, FIRST))["stream"]


def test_the_index_names_a_block_every_64_kib() -> None:
    stream = Stream(FolderDisk(), 1, segment_bytes=1 << 20, block_bytes=8192)
    stream.fill(300, size=1000, each=8)
    data = file(stream.disk, FIRST)
    seed = head_of(data)["seed"]
    blocks = {at: head for at, head, _ in blocks_of(data)}
    index = file(stream.disk, FIRST.replace("seg", "idx"))
    assert len(index) == (len(data) >> 16) * 32
    last = HEAD
    for number in range(len(index) // 32):
        first, at, time, zero, check = struct.unpack_from("<QQQII", index, number * 32)
        assert check == salted(seed, number, index[number * 32:number * 32 + 28]) and zero == 0
        assert blocks[at]["first"] == first and at >= last + (64 << 10)
        assert time == max(b["time"] + b["span"] for o, b in blocks.items() if o < at)
        last = at


def test_the_mark_of_a_consumer() -> None:
    data = consumer_mark([5, 1 << 40], 77)
    assert data[:-4] == struct.pack("<8sIIQQQ", b"mosqcon\n", 1, 2, 77, 5, 1 << 40)
    assert data[-4:] == struct.pack("<I", crc(data[:-4]))


@pytest.mark.parametrize("topic", [b"", b"a", b"plant/line/7", b"x" * 300])
@pytest.mark.parametrize("shards", [1, 2, 7, 64])
def test_the_shard_of_a_topic_is_computed_from_its_crc(topic: bytes, shards: int) -> None:
    assert shard_of(topic, shards) == extended_crc(0, topic) * shards >> 32


# ---- damaged

def test_a_flipped_byte_loses_its_block_only(stream: Stream) -> None:
    for n in (1, 3, 2):
        stream.fill(n, size=5, each=n)
    blocks = [(at, at + 48 + head["n"], head["first"], head["first"] + head["count"]) for at, head, _ in blocks_of(file(stream.disk, FIRST))]
    for lo, hi, first, end in blocks:
        for _ in flips(stream.disk, FIRST, range(lo, hi)):
            stream.check(lost=[(0, "damaged", first, end)])
    for _ in flips(stream.disk, FIRST, [*range(90), *range(2040, 2140)]):
        stream.check()          # one copy of the head is enough


def test_a_segment_without_heads_is_reported_as_a_lost_range() -> None:
    stream = Stream(FolderDisk())
    stream.fill(30, size=500)
    middle = stream.disk.segments()[2]
    lo, hi = (first_of(name) for name in stream.disk.segments()[2:4])
    for at in (3, 2048 + 50):
        stream.disk.files[middle].data[at] ^= 1
    stream.check(lost=[(0, "damaged", lo, hi)])
    stream.kill()
    stream.open()               # the writer does not need it
    assert stream.face.found["unreadable"] == 1
    stream.fill(3)
    stream.check(lost=[(0, "damaged", lo, hi)])


def test_a_missing_segment_is_reported_as_a_lost_range() -> None:
    stream = Stream(FolderDisk())
    stream.fill(30, size=500)
    names = stream.disk.segments()
    for which in (0, 1):
        del stream.disk.files[names[which]]
        stream.check(lost=[(0, "missing", 0, first_of(names[which + 1]))])


def test_a_file_cut_at_each_byte_is_read_to_its_end(stream: Stream) -> None:
    for n in (2, 1, 3):
        stream.fill(n, size=5, each=n)
    data = stream.disk.files[f"{DIR}/{FIRST}"].data
    whole = bytes(data)
    ends = [(HEAD, 0)] + [(at + 48 + head["n"], head["first"] + head["count"]) for at, head, _ in blocks_of(whole)]
    for cut in range(len(whole) - 1, HEAD - 1, -1):
        del data[cut:]
        have = max(seq for end, seq in ends if end <= cut)
        records, lost = stream.read()
        assert [r[0] for r in records] == list(range(have))
        assert [(lo, hi) for _, _, lo, hi in lost] == [(have, 6)]


def test_a_torn_end_is_skipped_and_the_numbers_continue() -> None:
    stream = Stream(FolderDisk(), segment_bytes=1 << 20)
    stream.fill(2)
    for n in (2, 3):
        for _ in range(n):
            stream.append()
        stream.write()          # not synced: it may not be on the disk
    whole = file(stream.disk, FIRST)
    ends = [(at + 48 + head["n"], head["first"] + head["count"]) for at, head, _ in blocks_of(whole)]
    files = dict(stream.disk.files)
    stream.kill()
    for cut in range(ends[1][0], len(whole) + 1):
        stream.disk.files = dict(files)
        for name in ("mark.a", "mark.b", FIRST):
            stream.disk.put(f"{DIR}/{name}", bytes(files[f"{DIR}/{name}"].data))
        del stream.disk.files[f"{DIR}/{FIRST}"].data[cut:]
        face = PyJournal(DIR, disk=stream.disk)
        have = max(seq for end, seq in ends if end <= cut)
        assert face.next_seq() == have
        assert (face.found["lost"], face.found["beyond"]) == ([], have - 2)
        assert face.found["torn_bytes"] == cut - max(end for end, _ in ends if end <= cut)
        assert face.append(0)[0] == have
        face.close()
        assert marks(DIR, disk=stream.disk)["shards"][0]["seq"] == have


def test_a_damaged_mark_is_replaced_by_the_other(stream: Stream) -> None:
    stream.fill(3)
    newer, older = sorted(("mark.a", "mark.b"), key=lambda name: -mark_of(file(stream.disk, name))["generation"])
    for _ in flips(stream.disk, newer, range(len(file(stream.disk, newer)))):
        assert marks(DIR, disk=stream.disk)["shards"][0]["seq"] == 2
    for _ in flips(stream.disk, older, range(len(file(stream.disk, older)))):
        assert marks(DIR, disk=stream.disk)["shards"][0]["seq"] == 3


def test_without_a_mark_the_segments_give_the_end() -> None:
    stream = Stream(FolderDisk(), 2)
    stream.fill(30, size=500)
    stream.fill(3, shard=1)
    identity = stream.face.marks()["stream_id"]
    stream.kill()
    del stream.disk.files[f"{DIR}/mark.a"], stream.disk.files[f"{DIR}/mark.b"]
    last = stream.disk.files[stream.disk.segments()[-2]].data
    last[HEAD + 50] ^= 1        # data behind damage counts here, because the promised end is unknown
    with pytest.raises(FileNotFoundError):
        stream.reader()
    stream.open()
    assert stream.face.found["mark_lost"]
    assert [stream.face.next_seq(shard) for shard in range(2)] == [30, 3]
    assert stream.face.marks()["stream_id"] == identity
    stream.check(shard=1)


def test_without_a_mark_numbers_of_an_unreadable_segment_are_skipped() -> None:
    stream = Stream(FolderDisk())
    stream.fill(30, size=500)
    stream.kill()
    del stream.disk.files[f"{DIR}/mark.a"], stream.disk.files[f"{DIR}/mark.b"]
    name = stream.disk.segments()[-1]
    stream.disk.files[name].data[:HEAD] = bytes(HEAD)
    stream.open()
    assert stream.face.next_seq() >= 30


@pytest.mark.parametrize("how", ["missing", "cut", "flipped", "of another"])
def test_a_wrong_index_loses_no_record(how: str) -> None:
    stream = Stream(FolderDisk(), 1, segment_bytes=1 << 20, block_bytes=8192)
    stream.fill(300, size=1000, each=8)
    name = f"{DIR}/{FIRST.replace('seg', 'idx')}"
    index = stream.disk.files[name].data
    if how == "missing":
        del stream.disk.files[name]
    elif how == "cut":
        del index[45:]
    elif how == "flipped":
        for at in range(0, len(index), 40):
            index[at] ^= 8
    else:
        index[:32], index[32:64] = index[32:64], index[:32]
    reader = stream.reader()
    for seq in (0, 1, 70, 150, 151, 299):
        reader.seek(seq)
        assert reader.read(most=1)[0][0] == seq
        assert reader.seek_time(stream.appended[0][seq][2]) == seq
    assert reader.seek_time(stream.clock_us + 1) == 300


def test_a_damaged_mark_of_a_consumer_counts_as_none(stream: Stream) -> None:
    stream.disk.put(f"{DIR}/consumers/spark.1", consumer_mark([7], 5))
    stream.disk.put(f"{DIR}/consumers/.spark.1.new", b"")
    stream.disk.put(f"{DIR}/consumers/a b", b"")
    assert consumers(DIR, disk=stream.disk) == {"spark.1": (5, [7])}
    for _ in flips(stream.disk, "consumers/spark.1", range(len(consumer_mark([7], 5)))):
        assert consumers(DIR, disk=stream.disk) == {"spark.1": None}


# ---- refused

@pytest.mark.parametrize("name", ["mark.b", FIRST])
def test_a_later_format_is_not_touched(stream: Stream, name: str) -> None:
    stream.fill(1)
    stream.kill()
    data = stream.disk.files[f"{DIR}/{name}"].data
    data[8] = 2
    for at, n in ((0, 88), (2048, 88)) if name == FIRST else ((0, len(data)),):
        data[at + 8] = 2
        struct.pack_into("<I", data, at + n - 4, crc(bytes(data[at:at + n - 4])))
    before = {n: bytes(f.data) for n, f in stream.disk.files.items()}
    with pytest.raises(OSError, match=r"has format 2, this version supports 1 and older; use the version that wrote it"):
        stream.open()
    assert {n: bytes(f.data) for n, f in stream.disk.files.items()} == before


def test_segments_of_another_stream_are_not_touched(stream: Stream) -> None:
    stream.fill(1)
    other = Stream(FolderDisk())
    other.fill(2)
    stream.kill()
    stream.disk.put(f"{DIR}/000-{7:020}-{9:020}.seg", file(other.disk, FIRST))
    with pytest.raises(OSError, match=r"segments of more than one stream .* move them away"):
        stream.open()
