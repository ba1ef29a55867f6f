"""Test `mosq backup` and `mosq restore`: of a running broker under load, killed at each step, on a full disk, and with
damaged, hostile and newer archives."""

from __future__ import annotations

import fcntl
import grp
import gzip
import hashlib
import io
import json
import os
import pwd
import resource
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mosq._core import segment_read, segments
from mosq.cli.commands import main
from mosq.tools.backup import restore, sources
from mosq.tools.backup.archive import BackupError, Reader
from mosq.tools.backup.restore import _owner_of as restore_owner
from mosq.tools.backup.restore import restore_store
from mosq.tools.backup.save import save
from tests.harness.broker import ROOT, Broker

CONFIG = """listener {port} 127.0.0.1
persistence true
persistence_location {dir}
password_file {dir}/passwd
acl_file {dir}/acl
include_dir {dir}/conf.d
stream all m/#
"""

KILLED = 9


def quiet(label: str, length: int) -> Callable[[int], None]:
    return lambda count: None


def words(broker: Broker) -> tuple[str, ...]:
    return "-h", "127.0.0.1", "-p", str(broker.port), "-u", "ann", "-P", "secret", "-q", "1"


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Run a broker with a durable session, a retained message, and a stream."""
    made = Broker(CONFIG, {"acl": "user ann\ntopic readwrite #\ntopic readwrite $stream/#\n"})
    (made.dir / "conf.d").mkdir()
    (made.dir / "conf.d/one.conf").write_text("max_keepalive 600\n")
    assert main(["passwd", "-b", "-c", str(made.dir / "passwd"), "ann", "secret"]) == 0
    for path in (made.dir / "passwd", made.dir / "conf.d"):
        path.chmod(0o755)
    with made:
        assert main(["sub", *words(made), "-i", "reader", "-c", "-t", "m/#", "-E"]) == 0
        assert main(["pub", *words(made), "-t", "kept", "-r", "-m", "retained"]) == 0
        assert main(["pub", *words(made), "-t", "m/1", "-m", "first"]) == 0
        yield made


@pytest.fixture
def archive(broker: Broker, tmp_path: Path) -> Path:
    """Return a backup of the running broker."""
    path = tmp_path / "one.tar.gz"
    assert main(["backup", "-c", str(broker.config), str(path)]) == 0
    return path


def restored(archive: Path, *more: str) -> Broker:
    """Restore everything for another broker on its own folder, and start it."""
    other = Broker(CONFIG, {"acl": "user ann\ntopic readwrite #\ntopic readwrite $stream/#\n"})
    other.dir.chmod(0o777)
    (other.dir / "conf.d").mkdir()
    assert main(["restore", "-c", str(other.config), *more, str(archive)]) == 0
    with tarfile.open(archive) as tar:
        [name] = [name for name in tar.getnames() if name.endswith("/passwd")]
        content = tar.extractfile(name)
        assert content is not None
        (other.dir / "passwd").write_bytes(content.read())
        (other.dir / "passwd").chmod(0o644)
    return other


def received(broker: Broker, capfdbinary: pytest.CaptureFixture[bytes], count: int) -> list[bytes]:
    capfdbinary.readouterr()
    assert main(["sub", *words(broker), "-i", "reader", "-c", "-t", "m/#", "-C", str(count), "-W", "30"]) == 0
    return capfdbinary.readouterr().out.splitlines()


def test_a_backup_of_a_running_broker_is_restored(broker: Broker, archive: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert archive.stat().st_mode & 0o777 == 0o600
    with restored(archive) as other:
        assert not [line for line in other.log().splitlines() if "lost" in line or "damaged" in line]
        assert received(other, capfdbinary, 1) == [b"first"]
        assert main(["sub", *words(other), "-t", "kept", "-C", "1", "-W", "10"]) == 0
        assert main(["sub", *words(other), "-V", "5", "-t", "$stream/all/first/#", "-C", "1", "-W", "10"]) == 0
        assert capfdbinary.readouterr().out == b"retained\nfirst\n"


def test_a_backup_under_load_has_all_that_was_acknowledged_before(broker: Broker, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A thread publishes messages of 300 kB in order, so that several segments are filled. Each backup contains the
    messages that were acknowledged before it began, and no gap behind them."""
    done, acknowledged = threading.Event(), [0]
    publisher = subprocess.Popen([sys.executable, "-m", "mosq", "pub", *words(broker), "-t", "m/2", "-l", "-d"], cwd=ROOT,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert publisher.stdin is not None and publisher.stdout is not None

    def count() -> None:
        for line in publisher.stdout:           # type: ignore[union-attr]
            acknowledged[0] += b"received PUBACK" in line

    def feed() -> None:
        number = 0
        while not done.is_set() and number < 90:
            publisher.stdin.write(b"%d %s\n" % (number, b"x" * 300_000))     # type: ignore[union-attr]
            publisher.stdin.flush()                                          # type: ignore[union-attr]
            number += 1
        publisher.stdin.close()                                              # type: ignore[union-attr]

    threads = [threading.Thread(target=count), threading.Thread(target=feed)]
    for thread in threads:
        thread.start()
    archives = []
    for number in range(3):
        before = acknowledged[0]
        path = tmp_path / f"{number}.tar"
        save(str(broker.config), str(path), True, False, quiet)
        archives.append((path, before))
    done.set()
    for thread in threads:
        thread.join()
    publisher.stdout.close()
    assert publisher.wait() == 0
    for path, before in archives:
        with restored(path) as other:
            main(["pub", *words(other), "-t", "m/end", "-m", "end"])
            capfdbinary.readouterr()
            process = subprocess.run([sys.executable, "-m", "mosq", "sub", *words(other), "-i", "reader", "-c", "-t", "m/#", "-v", "-W", "2"],
                                     cwd=ROOT, capture_output=True, check=False)
            got = [line.split()[1] for line in process.stdout.splitlines() if line.startswith(b"m/2")]
            assert got == [b"%d" % number for number in range(len(got))]
            assert len(got) >= before
            assert b"m/end end" in process.stdout


def publish(broker: Broker, first: int, count: int) -> None:
    """Publish messages of 300 kB with their numbers, and wait for their acknowledgements."""
    lines = b"".join(b"%d %s\n" % (number, b"x" * 300_000) for number in range(first, first + count))
    subprocess.run([sys.executable, "-m", "mosq", "pub", *words(broker), "-t", "m/2", "-l"], cwd=ROOT, input=lines, check=True)


def numbers(broker: Broker, archive: Path) -> list[int]:
    """Restore a backup; return the numbers of the messages that wait in it."""
    with restored(archive) as other:
        assert not [line for line in other.log().splitlines() if "lost" in line or "damaged" in line]
        main(["pub", *words(other), "-t", "m/end", "-m", "end"])
        process = subprocess.Popen([sys.executable, "-m", "mosq", "sub", *words(other), "-i", "reader", "-c", "-t", "m/#", "-W", "60"],
                                   cwd=ROOT, stdout=subprocess.PIPE)
        found = []
        assert process.stdout is not None
        for line in process.stdout:
            if line == b"end\n":
                break
            if line != b"first\n":
                found.append(int(line.split()[0]))
        else:
            pytest.fail("the last message did not come")
        process.kill()
        process.wait()
        process.stdout.close()
        return found


SEGMENT_BYTES = 16 << 20


@pytest.mark.parametrize("place", [0, SEGMENT_BYTES // 2, SEGMENT_BYTES * 3 // 2, SEGMENT_BYTES * 2 - (256 << 10)])
def test_a_backup_during_which_segments_end_has_no_gap(broker: Broker, tmp_path: Path, place: int) -> None:
    """The store has one full segment and a half. When the backup has copied `place` bytes of them, more messages fill the
    second segment and a third one. The backup has all messages from before it, and no gap between later ones."""
    publish(broker, 0, 80)
    copied, is_done = 0, False

    def progress(label: str, length: int) -> Callable[[int], None]:
        return step

    def step(count: int) -> None:
        nonlocal copied, is_done
        copied += count
        if copied >= place and not is_done:
            is_done = True
            publish(broker, 80, 60)

    save(str(broker.config), str(tmp_path / "a.tar"), True, False, progress)
    assert is_done
    found = numbers(broker, tmp_path / "a.tar")
    assert found == list(range(len(found)))
    assert len(found) >= 80


def test_a_backup_goes_on_if_a_file_is_used_again_before_it_is_copied(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                      capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """After the backup has listed the segments, their messages are acknowledged, and the file of the oldest one gets another
    segment. The backup has the new messages only."""
    publish(broker, 0, 80)
    first = 80
    is_done = False

    def read(folder: str, slot: int, number: int) -> bytes | None:
        nonlocal first, is_done
        if not is_done:
            is_done = True
            received(broker, capfdbinary, 81)
            for first in range(80, 1000, 60):
                publish(broker, first, 60)
                if any(found[0] == slot and found[1] != number for found in segments(folder)[0]):
                    break
                received(broker, capfdbinary, 60)
            else:
                pytest.fail("the file was not used again")
            assert segment_read(folder, slot, number) is None
        return segment_read(folder, slot, number)

    monkeypatch.setattr(sources, "segment_read", read)
    save(str(broker.config), str(tmp_path / "a.tar"), True, False, quiet)
    assert is_done
    assert numbers(broker, tmp_path / "a.tar") == list(range(first, first + 60))


def test_a_backup_survives_a_kill_of_the_broker(broker: Broker, tmp_path: Path) -> None:
    """The broker is killed and started again while the backup copies; both moments are in the backup."""
    publish(broker, 0, 80)
    is_done = False

    def progress(label: str, length: int) -> Callable[[int], None]:
        nonlocal is_done
        if label == "Copying the store" and not is_done:
            is_done = True
            broker.send_signal(KILLED)
            broker.stop()
            broker.start()
            publish(broker, 80, 3)
        return lambda count: None

    save(str(broker.config), str(tmp_path / "a.tar"), True, False, progress)
    assert is_done
    assert numbers(broker, tmp_path / "a.tar") == list(range(83))


def test_a_backup_ends_if_the_broker_writes_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each list of the segments has another newest one."""
    count = iter(range(1, 1_000_000))
    monkeypatch.setattr(sources, "BYTES_MORE", 1000)
    monkeypatch.setattr(sources, "segments", lambda folder: ([(1, number := next(count), 0), (2, number + 1, 0)], []))
    monkeypatch.setattr(sources, "segment_read", lambda folder, slot, number: bytes(100))
    with pytest.raises(BackupError, match="faster than this command copies"):
        sources.StoreCopy(str(tmp_path), lambda content: None).finish()
    assert next(count) < 100


def test_two_backups_with_one_name_do_not_mix(broker: Broker, tmp_path: Path) -> None:
    """The second one begins while the first one writes."""
    path = tmp_path / "a.tar"
    refused = []

    def progress(label: str, length: int) -> Callable[[int], None]:
        if not refused:
            refused.append("")
            with pytest.raises(BackupError, match="Another backup writes") as error:
                save(str(broker.config), str(path), True, False, quiet)
            refused[0] = str(error.value)
        return lambda count: None

    save(str(broker.config), str(path), True, False, progress)
    assert "Choose another name" in refused[0]
    assert os.listdir(tmp_path) == ["a.tar"]
    assert main(["restore", "--check", str(path)]) == 0


def test_the_secrets_of_a_backup_go_to_no_file_of_others(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a shared folder, another user may have made the file before."""
    partial = tmp_path / "one.tar.partial"
    partial.write_text("")
    os.link(partial, tmp_path / "mine")
    assert main(["backup", "-c", str(broker.config), str(tmp_path / "one.tar")]) == 1
    assert "one.tar.partial belongs to another user or has another name too" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == ""
    (tmp_path / "mine").unlink()
    if os.geteuid() == 0:
        os.chown(partial, pwd.getpwnam("nobody").pw_uid, -1)
        assert main(["backup", "-c", str(broker.config), str(tmp_path / "one.tar")]) == 1
        assert partial.read_text() == "" and partial.owner() == "nobody"
    partial.unlink()
    assert main(["backup", "-c", str(broker.config), str(tmp_path / "one.tar")]) == 0


def test_a_damaged_file_of_the_store_is_left_out_with_a_warning(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = broker.dir / "mosquitto.db.store"
    (folder / "segment.000090").write_bytes(b"x" * 5000)
    assert main(["backup", "-c", str(broker.config), str(tmp_path / "a.tar")]) == 0
    assert "segment.000090 (damaged, or of another store)" in capsys.readouterr().err
    with restored(tmp_path / "a.tar") as other:
        assert other.alive()


def test_a_running_broker_and_a_store_are_not_overwritten(broker: Broker, archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(broker.config)
    assert main(["restore", "-c", config, "--force", str(archive)]) == 1
    assert "Another broker (process" in capsys.readouterr().err.replace("another", "Another").replace("broker with process", "broker (process")
    broker.stop()
    assert main(["restore", "-c", config, str(archive)]) == 1
    assert "Give --force" in capsys.readouterr().err
    assert main(["restore", "-c", config, "--force", str(archive)]) == 0
    kept = capsys.readouterr().out.rpartition("The old store is in ")[2].strip().rstrip(".")
    assert any(name.startswith("segment.") for name in os.listdir(kept))
    broker.start()


def test_the_configuration_goes_back(broker: Broker, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = tmp_path / "etc"
    assert main(["restore", "--config-to", str(base), str(archive)]) == 0
    there = base / str(broker.dir).lstrip("/")
    assert sorted(str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()) == ["acl", "conf.d/one.conf", "mosq.conf", "passwd"]
    (there / "acl").write_text("changed")
    assert main(["restore", "--config-to", str(base), str(archive)]) == 1
    assert (there / "acl").read_text() == "changed"
    assert main(["restore", "--config-to", str(base), "--force", str(archive)]) == 0
    assert (there / "acl").read_text().startswith("user ann")
    assert [path.read_text() for path in there.glob("acl.before-restore.*")] == ["changed"]


def test_a_broker_without_rights_of_root_reads_the_restored_folders(archive: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert main(["restore", "-q", "--config-to", str(tmp_path / "etc"), str(archive)]) == 0
    finally:
        os.umask(before)
    folders = [tmp_path / "etc", *(path for path in (tmp_path / "etc").rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o755}


def test_secrets_can_be_left_out(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backup", "-c", str(broker.config), "--without-secrets", str(tmp_path / "a.tar")]) == 0
    assert "Warning: not in the backup: " in capsys.readouterr().err
    with Reader(str(tmp_path / "a.tar")) as reader:
        assert not [name for name in reader.names if name.endswith("passwd")]


# ---------------------------------------------------------------- faults

def in_child(act: Callable[[], object]) -> int:
    """Run a function in another process; return its exit status."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_after(count: int) -> Callable[[str, int], Callable[[int], None]]:
    left = [count]

    def step(_: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            os._exit(KILLED)

    return lambda label, length: step


def test_a_kill_during_a_backup_leaves_no_archive(broker: Broker, tmp_path: Path) -> None:
    path, statuses = tmp_path / "a.tar", []
    for count in range(0, 60, 3):
        statuses.append(in_child(lambda count=count: save(str(broker.config), str(path), True, True, killed_after(count))))  # type: ignore[misc]
        assert path.exists() == (0 in statuses)
        if path.exists():
            Reader(str(path)).close()
    save(str(broker.config), str(path), True, True, quiet)
    assert KILLED in statuses
    assert os.listdir(tmp_path) == ["a.tar"]


def test_a_kill_during_a_restore_leaves_the_old_store_or_the_new_one(broker: Broker, archive: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    folder = data / "mosquitto.db.store"
    with Reader(str(archive)) as reader:
        restore_store(reader, str(folder), None, False, lambda count: None)
    (folder / "old").write_text("")
    real = os.rename
    outcomes = set()

    def run(count: int, renames: int) -> None:
        left = [renames]

        def rename(*paths: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                os._exit(KILLED)
            real(*paths)

        os.rename = rename      # type: ignore[assignment]
        with Reader(str(archive)) as reader:
            restore_store(reader, str(folder), None, True, killed_after(count)("", 0))

    for count, renames in ((0, 9), (3, 9), (20, 9), (999_999, 0), (0, 9), (999_999, 9)):
        status = in_child(lambda count=count, renames=renames: run(count, renames))     # type: ignore[misc]
        names = os.listdir(folder)
        assert any(name.startswith("segment.") for name in names), (count, renames)
        outcomes.add((status, "old" in names))
    assert outcomes >= {(KILLED, True), (0, False)}
    assert not (data / "mosquitto.db.store.restoring").exists()


def test_a_full_disk_is_reported_and_leaves_nothing(broker: Broker, tmp_path: Path) -> None:
    """A limit of the file size stands for a full disk: both fail a write in the middle of the archive."""
    publish(broker, 0, 8)
    done = subprocess.run([sys.executable, "-m", "mosq", "backup", "-c", str(broker.config), str(tmp_path / "a.tar")], cwd=ROOT, text=True,
                          capture_output=True, check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
    assert done.returncode == 1
    assert done.stderr.startswith("Error: The backup is not written: ")
    assert os.listdir(tmp_path) == []
    assert main(["pub", *words(broker), "-t", "m/2", "-m", "on"]) == 0


def test_each_damaged_byte_is_found(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    save(str(broker.config), str(path), True, False, quiet)
    good = path.read_bytes()
    with tarfile.open(path) as tar:
        ends = [member.offset_data + member.size for member in tar]
    first, end = ends[-2:]              # of the last file, and of the manifest
    places = [*range(0, 4096, 273), *range(4096, first, (first - 4096) // 100), *range(first, end, 37)]
    for place in places:
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x55]) + good[place + 1:])
        in_content = any(place < end for end in ends)
        try:
            with Reader(str(path)) as reader:
                reader.copy(list(reader.names), lambda name: None, lambda count: None)
        except BackupError:
            continue
        with tarfile.open(path) as tar:     # bytes between two files, and times and owners in heads, carry nothing
            assert in_content
            for member in tar:
                assert not member.offset_data <= place < member.offset_data + member.size, place
    for size in range(0, max(ends), len(good) // 9):
        path.write_bytes(good[:size])
        with pytest.raises(BackupError), Reader(str(path)) as reader:
            reader.copy(list(reader.names), lambda name: None, lambda count: None)


def without_sums(path: Path, changed: dict[str, object], to: Path) -> None:
    """Copy an archive as a version without a checksum of the manifest has written it, with a changed manifest."""
    with tarfile.open(path) as tar, tarfile.open(to, "w") as out:
        for member in tar:
            content = tar.extractfile(member)
            assert content is not None
            text = content.read()
            if member.name == "manifest.json":
                manifest = json.loads(text) | changed
                manifest.pop("sum", None)
                text = json.dumps(manifest).encode()
                member.size, member.pax_headers = len(text), {}
            out.addfile(member, io.BytesIO(text))


def test_each_changed_byte_of_the_manifest_is_found(broker: Broker, tmp_path: Path) -> None:
    """Also one in a field that names no file, such as the time of the backup."""
    path = tmp_path / "a.tar"
    save(str(broker.config), str(path), True, False, quiet)
    good = path.read_bytes()
    at = good.index(b'"made_at": "') + len(b'"made_at": "')
    path.write_bytes(good[:at] + b"1" + good[at + 1:])
    with pytest.raises(BackupError, match=r"manifest\.json has another checksum"):
        Reader(str(path))
    at = good.index(b"MOSQ.sha256=")
    path.write_bytes(good[:at] + b"XOSQ" + good[at + 4:])
    with pytest.raises(BackupError, match=r"checksum of manifest\.json is missing"):
        Reader(str(path))


def test_an_archive_of_a_version_without_that_checksum_is_restored_with_a_note(broker: Broker, archive: Path, tmp_path: Path,
                                                                               capsys: pytest.CaptureFixture[str]) -> None:
    without_sums(archive, {"broker": "mosq 0.1.9"}, tmp_path / "old.tar")
    capsys.readouterr()
    with restored(tmp_path / "old.tar") as other:
        assert other.alive()
    note = capsys.readouterr().err
    assert note.startswith("Note: ")
    assert "was written by mosq 0.1.9, which wrote no checksum of the list of files" in note
    with restored(archive) as other:
        assert other.alive()
    assert "Note:" not in capsys.readouterr().err


def test_a_restore_refuses_a_changed_file_by_its_name(broker: Broker, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tarfile.open(archive) as tar, tarfile.open(tmp_path / "b.tar", "w") as out:
        for member in tar:
            content = tar.extractfile(member)
            assert content is not None
            text = content.read()
            out.addfile(member, io.BytesIO(text.upper() if member.name.endswith("/acl") else text))
    assert main(["restore", "--config-to", str(tmp_path / "etc"), str(tmp_path / "b.tar")]) == 1
    said = capsys.readouterr().err
    assert "is damaged: config/" in said
    assert "/acl has another checksum" in said
    assert not [path for path in (tmp_path / "etc").rglob("*") if path.is_file()]


def test_a_backup_names_what_killed_ones_have_left(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It names neither the file of a backup that runs nor those of other programs, and removes none."""
    def kill(label: str, length: int) -> Callable[[int], None]:
        os._exit(KILLED)

    assert in_child(lambda: save(str(broker.config), str(tmp_path / "monday.tar.gz"), True, False, kill)) == KILLED
    (tmp_path / "film.partial").write_bytes(b"RIFF")
    with (tmp_path / "running.tar.partial").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert main(["backup", "-c", str(broker.config), str(tmp_path / "a.tar")]) == 0
    err = capsys.readouterr().err
    assert err == f"Warning: {tmp_path}/monday.tar.gz.partial was left by a backup that was killed. Remove it.\n"
    assert (tmp_path / "monday.tar.gz.partial").exists()
    (tmp_path / "running.tar.partial").unlink()
    assert main(["backup", "-c", str(broker.config), str(tmp_path / "monday.tar.gz")]) == 0
    assert "Warning" not in capsys.readouterr().err


def made(path: Path, manifest: object, members: dict[str, bytes], links: tuple[str, ...] = ()) -> Reader:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            if name in links:
                member.type, member.size, member.linkname = tarfile.SYMTYPE, 0, "/etc/passwd"
            tar.addfile(member, io.BytesIO(content))
        content = json.dumps(manifest).encode()
        member = tarfile.TarInfo("manifest.json")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    with Reader(str(path)) as reader:
        return reader


ONE = {"size": 1, "sha256": "0", "mode": 0o600}


@pytest.mark.parametrize(("manifest", "members", "why"), [
    ({"format": 3, "broker": "mosq 9.0", "members": {}}, {}, "Install that version"),
    ({"format": "x", "broker": 1}, {}, "damaged manifest"),
    ([], {}, "damaged manifest"),
    ({"format": 1, "broker": "mosq", "members": {"store/a": 1}}, {}, "damaged manifest"),
    ({"format": 1, "broker": "mosq", "store": 3, "members": {}}, {}, "damaged manifest"),
    ({"format": 1, "broker": "mosq", "store": "/lib/..", "members": {}}, {}, "not allowed for a store"),
    ({"format": 1, "broker": "mosq", "store": "/lib/", "members": {}}, {}, "not allowed for a store"),
    ({"format": 1, "broker": "mosq", "store": "/lib/a\0b", "members": {}}, {}, "not allowed for a store"),
    ({"format": 1, "broker": "mosq", "members": {"store/a\0b": ONE}}, {}, "not allowed"),
    ({"format": 1, "broker": "mosq", "members": {"config/../../x": ONE}}, {"config/../../x": b"x"}, "not allowed"),
    ({"format": 1, "broker": "mosq", "members": {"/etc/x": ONE}}, {"/etc/x": b"x"}, "not allowed"),
    ({"format": 1, "broker": "mosq", "members": {"store//x": ONE}}, {"store//x": b"x"}, "not allowed"),
    ({"format": 1, "broker": "mosq", "members": {}}, {"store/x": b"x"}, "does not name"),
    ({"format": 1, "broker": "mosq", "members": {"store/x": ONE}}, {}, "missing"),
    ({"format": 1, "broker": "mosq", "members": {"store/x": ONE}}, {"store/x": b"xx"}, "another size"),
], ids=lambda one: None)
def test_a_hostile_or_newer_archive_is_refused(tmp_path: Path, manifest: object, members: dict[str, bytes], why: str) -> None:
    with pytest.raises(BackupError, match=why):
        made(tmp_path / "a.tar", manifest, members)


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="missing"):
        made(tmp_path / "a.tar", {"format": 1, "broker": "mosq", "members": {"store/x": {**ONE, "size": 0}}}, {"store/x": b""}, ("store/x",))


def test_a_file_that_is_no_archive_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").write_text("hello\n")
    assert main(["restore", "--check", str(tmp_path / "notes")]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and "notes is no archive of `mosq backup`, or it is damaged" in said[0]


def test_a_negative_size_in_an_archive_is_refused(tmp_path: Path) -> None:
    first, second = tarfile.TarInfo("store/a"), tarfile.TarInfo("store/b")
    second.size = -1024                 # the next head would be that of store/a
    (tmp_path / "a.tar").write_bytes(first.tobuf(tarfile.GNU_FORMAT) + second.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(BackupError, match="it is damaged"), Reader(str(tmp_path / "a.tar")):
        pass


def test_a_sparse_file_in_an_archive_is_refused(tmp_path: Path) -> None:
    size = 1 << 50
    block = f"1\n{size}\n0\n".encode().ljust(512, b"\0")
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("store/x")
        member.size, member.pax_headers = len(block), {
            "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "store/x", "GNU.sparse.realsize": str(size)}
        tar.addfile(member, io.BytesIO(block))
        content = json.dumps({"format": 1, "broker": "mosq", "members": {"store/x": {**ONE, "size": size}}}).encode()
        member = tarfile.TarInfo("manifest.json")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    with pytest.raises(BackupError, match="is damaged"), Reader(str(tmp_path / "a.tar")):
        pass


def head(kind: bytes, size: int) -> bytes:
    member = tarfile.TarInfo("store/a")
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT) + bytes(2048)


@pytest.mark.parametrize("size", [1 << 40, 1 << 63, 1 << 70])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_head_with_a_huge_size_is_refused_without_its_memory(tmp_path: Path, kind: bytes, size: int, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.tar").write_bytes(head(kind, size))
    assert main(["restore", "--check", str(tmp_path / "a.tar")]) == 1
    assert "a.tar is no archive of `mosq backup`, or it is damaged" in capsys.readouterr().err


def test_a_compressed_archive_cannot_make_the_reader_hold_a_huge_head(tmp_path: Path) -> None:
    """Its head of 100 MB is zeros, so the file is small."""
    content = head(tarfile.XHDTYPE, 100 << 20) + bytes(100 << 20)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(content, 1))
    with pytest.raises(BackupError, match="a head names 104,857,600 bytes"), Reader(str(tmp_path / "a.tar.gz")):
        pass


@pytest.mark.parametrize("content", [b"99999999999999999999999 path=x\n", b"20 size=999999999999\n", b"30 size=99999999999999999999999\n",
                                     b"25 GNU.sparse.size=abcd\n", b"0 path=x\n", b"\xff\xff =\n"], ids=repr)
def test_a_wrong_field_of_a_head_is_refused_in_one_line(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.tar").write_bytes(head(tarfile.XHDTYPE, len(content))[:512] + content.ljust(512, b"\0") + head(tarfile.REGTYPE, 0))
    assert main(["restore", "--check", str(tmp_path / "a.tar")]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_more_files_than_a_manifest_can_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mosq.tools.backup.archive.MEMBERS_MAX", 3)
    with pytest.raises(BackupError, match="more than 3 files"):
        made(tmp_path / "a.tar", {"format": 1, "broker": "mosq", "members": {}}, {f"store/{n}": b"" for n in range(4)})


def test_control_characters_of_an_archive_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path / "a.tar", {"format": 1, "broker": "mosq \x1b[2J\ud800", "made_at": "\x07" * 1000, "members": {}}, {})
    assert main(["restore", "--check", str(tmp_path / "a.tar")]) == 0
    with pytest.raises(BackupError) as error:
        made(tmp_path / "b.tar", {"format": 1, "broker": "mosq", "members": {"store/\x1b[2J": ONE}}, {})
    out = capsys.readouterr()
    assert "mosq \\x1b[2J\\ud800" in out.out and "\x1b" not in out.out + out.err + str(error.value) and len(out.out) < 2000


def owned(names: list[str], number: int) -> Reader:
    """Return an archive of one file of this user and group."""
    reader = Reader.__new__(Reader)
    reader.names = {"config/x": {**ONE, "owner": [number, number], "names": names}}
    return reader


def test_a_file_goes_to_the_user_of_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    there = pwd.getpwuid(os.geteuid())
    group = grp.getgrgid(there.pw_gid).gr_name
    free = max(one.pw_uid for one in pwd.getpwall()) - 1
    while any(one.pw_uid == free for one in pwd.getpwall()):
        free -= 1
    assert owner_of(owned([there.pw_name, group], free)) == (there.pw_uid, there.pw_gid)
    assert owner_of(owned(["a-user-that-is-missing", "b"], there.pw_uid)) is None       # another user has its number here
    assert owner_of(owned(["a-user-that-is-missing", "b"], free)) == (free, free)
    assert owner_of(owned([], there.pw_uid)) == (there.pw_uid, there.pw_uid)            # an image without names of users
    assert owner_of(owned(["a\0b", "c"], free)) == (free, free)


def owner_of(reader: Reader) -> tuple[int, int] | None:
    return restore_owner("", reader, "config/x")


def test_a_backup_has_the_names_of_the_owners(archive: Path) -> None:
    with Reader(str(archive)) as reader:
        for name, one in reader.names.items():
            assert one["names"] == [pwd.getpwuid(one["owner"][0]).pw_name, grp.getgrgid(one["owner"][1]).gr_name], name


def test_an_impossible_owner_is_ignored(tmp_path: Path) -> None:
    one = {"size": 1, "sha256": hashlib.sha256(b"x").hexdigest(), "mode": 0o600, "owner": [1 << 70, -2]}
    made(tmp_path / "a.tar", {"format": 1, "broker": "mosq", "members": {"config/x": one}}, {"config/x": b"x"})
    assert main(["restore", "-q", "--config-to", str(tmp_path / "to"), str(tmp_path / "a.tar")]) == 0
    assert (tmp_path / "to/x").read_bytes() == b"x"


def test_a_link_in_place_of_the_stage_gets_no_file(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder above may belong to the broker's user, who could put a link to a folder of root there while root restores."""
    to, elsewhere = tmp_path / "to", tmp_path / "elsewhere"
    to.mkdir()
    elsewhere.mkdir()
    copy = Reader.copy

    def swapped(self: Reader, *arguments: Any) -> None:
        [stage] = to.glob("*.restoring")
        stage.rename(to / "moved")
        stage.symlink_to(elsewhere)
        copy(self, *arguments)

    monkeypatch.setattr(Reader, "copy", swapped)
    main(["restore", "-q", "--data-to", str(to), str(archive)])
    assert list(elsewhere.iterdir()) == []
    assert list((to / "moved").glob("segment.*"))


def test_the_owner_of_a_restored_store_gets_the_outermost_folder_last(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then that user cannot enter it, and so cannot put a link in the place of a folder in it while root gives files away."""
    given: list[str] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(restore.os, "chown", lambda path, *owner, **how: given.append(str(path)))
    monkeypatch.setattr(restore.os, "fchown", lambda fd, *owner: given.append(os.readlink(f"/proc/self/fd/{fd}")))
    monkeypatch.setattr(restore, "_held", lambda stage: restore._Stage(os.open(stage, os.O_RDONLY)))    # not root's here
    with Reader(str(archive)) as reader:
        restore.restore_store(reader, str(tmp_path / "to"), (12345, 12345), False, lambda count: None)
    assert given[-1] == str(tmp_path / "to.restoring")
    assert len(given) > 3 and given.index(given[-1]) == len(given) - 1


def test_files_of_other_users_in_the_folder_of_streams_are_left_out(tmp_path: Path) -> None:
    """The broker's user may write there, so a link could lead to a file that only root may read."""
    stream = tmp_path / "streams/all"
    stream.mkdir(parents=True)
    (stream / "own").write_bytes(b"x")
    (stream / "foreign").symlink_to("/etc/passwd")
    (tmp_path / "streams/etc").symlink_to("/etc")
    if os.geteuid() == 0:
        for path in (tmp_path, stream / "own"):
            os.chown(path, 12345, 12345)
    opened = sources.OpenFiles()
    left_out = sources.open_streams(str(tmp_path), opened, marks_only=False)
    try:
        assert list(opened.files) == ["store/streams/all/own"]
        assert {str(stream / "foreign"), f"{tmp_path}/streams/etc/passwd"} <= set(left_out)
    finally:
        opened.close()


def test_a_folder_that_is_no_store_is_not_replaced(archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Reader(str(archive)) as reader:
        place = tmp_path / "to" / Path(str(reader.manifest["store"])).name
    place.mkdir(parents=True)
    (place / "precious").write_text("x")
    assert main(["restore", "--data-to", str(place.parent), str(archive)]) == 1
    assert "has files, but no store" in capsys.readouterr().err
    assert os.listdir(place) == ["precious"]


def test_an_archive_of_another_program_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.tar").write_bytes(b"x" * 5000)
    assert main(["restore", "--check", str(tmp_path / "a.tar")]) == 1
    assert main(["restore", "--check", str(tmp_path / "none.tar")]) == 1
    assert "is no archive" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["restore a.tar", "restore --check -c x a.tar", "backup a.tar", "restore -c x --data-to y a.tar"])
def test_a_wrong_command_line_says_what_is_expected(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 3
    assert "xpected" in capsys.readouterr().err or line == "backup a.tar"


def test_an_archive_is_not_overwritten(broker: Broker, archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = archive.read_bytes()
    assert main(["backup", "-c", str(broker.config), str(archive)]) == 1
    assert "exists" in capsys.readouterr().err
    assert archive.read_bytes() == before


def test_the_configuration_of_a_node_has_no_store_to_back_up(archive: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    conf = tmp_path / "node.conf"
    conf.write_text("cluster redis://127.0.0.1\ncluster_node a\npersistence true\n")
    for command in (["backup", "-c", str(conf), str(tmp_path / "no.tar.gz")], ["restore", "-c", str(conf), str(archive)]):
        assert main(command) == 1
        assert b"is that of a node of a cluster, whose stores are in Redis" in capfdbinary.readouterr().err
    assert not (tmp_path / "no.tar.gz").exists()
