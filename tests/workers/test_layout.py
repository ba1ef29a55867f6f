"""Change the number of workers of stores, with a kill at each step, and with folders that do not belong together."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mosq.config.embedded import embedded_config
from mosq.config.model import Config
from mosq.server import layout
from mosq.server.layout import arrange, read_layout
from mosq.tools.db import store
from mosq.tools.db.mosquitto_save import save
from mosq.tools.db.partly import Spread

from tests.durable.test_handover import mosquitto_wrote
from tests.workers.test_divide import Writer, described

KILLED = 99
STEPS = (("rename", os), ("mkdir", os), ("fsync", os), ("unlink", os), ("rmdir", os), ("add", store.NewStore), ("finish", store.NewStore))


def config_of(root: Path, n: int, mosquitto_db: bool = False) -> Config:
    config = embedded_config(None, {"persistence": True, "persistence_location": f"{root.parent}/", "mosquitto_db": mosquitto_db})
    config.cluster_local = n
    return config


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with some sessions."""
    root = tmp_path_factory.mktemp("made") / "mosquitto.db.store"
    writer = Writer(root, 5)
    for _ in range(60):
        writer.step()
    writer.finish()
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "mosquitto.db.store"))


def lines_of(root: Path, n: int, mosquitto_db: bool = False) -> list[str]:
    lines: list[str] = []
    arrange(config_of(root, n, mosquitto_db), str(root), lambda _, text: lines.append(text))
    return lines


def content(root: Path) -> tuple[int, dict[str, Any]]:
    """Return the number of workers and what their stores hold."""
    found = read_layout(str(root))
    if found is None:
        return 1, described([root])
    return found.workers, described([root / f"worker.{i + 1}" for i in range(found.workers)], Spread(found.workers, found.key))


def clean(root: Path) -> bool:
    names = {one.name.split(".")[0] for one in root.iterdir()}
    return names <= {"lock", "segment", "worker", "workers", "replaced"}


def killed_at(step: int, what: Callable[[], object]) -> bool:
    """Call `what` in another process, and end that at one of its steps. Return False if it has fewer of them."""
    pid = os.fork()
    if pid == 0:
        left = step
        for name, place in STEPS:
            real = getattr(place, name)

            def call(*arguments: Any, real: Any = real, **named: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    os._exit(KILLED)
                return real(*arguments, **named)
            setattr(place, name, call)
        try:
            what()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, KILLED)
    return status == KILLED


def steps(what: Callable[[int], bool]) -> Iterator[int]:
    step = 0
    while what(step):
        yield step
        # the steps of writing are many, and alike
        step += 1 if step < 12 or step > 110 else 7


@pytest.mark.parametrize(("first", "then"), [(1, 2), (3, 2), (2, 1)])
def test_a_kill_at_any_step_leaves_the_old_or_the_new_stores(root: Path, tmp_path: Path, first: int, then: int) -> None:
    lines_of(root, first)
    _, expected = content(root)
    begun = tmp_path / "begun"
    shutil.copytree(root, begun)
    seen = set()

    def kill(step: int) -> bool:
        shutil.rmtree(root)
        shutil.copytree(begun, root)
        return killed_at(step, lambda: lines_of(root, then))

    for step in steps(kill):
        seen.add((root / "divided").exists() or (root / "placing").exists())
        killed_at(step % 5, lambda: lines_of(root, then))       # the next start is killed too
        again = first if step % 2 else then                     # and the last one may have the old number
        lines_of(root, again)
        assert content(root) == (again, expected)
        assert clean(root)
    assert seen == {False, True}
    assert content(root)[1] == expected


@pytest.mark.parametrize("removed", [True, False])
def test_a_kill_at_any_step_sets_stores_aside_completely(root: Path, tmp_path: Path, removed: bool) -> None:
    """An operator has removed mosquitto.db, or Mosquitto has changed it."""
    lines_of(root, 2, mosquitto_db=True)
    found, (_, before) = read_layout(str(root)), content(root)
    assert found is not None
    file = root.parent / "mosquitto.db"
    save(str(root), str(file), {}, key=found.key)
    if removed:
        file.unlink()
    else:
        mosquitto_wrote(file, b"theirs")
    begun = tmp_path / "begun"
    shutil.copytree(root, begun)
    # the mark knows its inode, so that a copy is not trusted
    mark = begun / "mosquitto.mark"
    lines = mark.read_text().splitlines()

    def kill(step: int) -> bool:
        shutil.rmtree(root)
        shutil.copytree(begun, root)
        path = root / "mosquitto.mark"
        path.write_text("\n".join([f"self {path.stat().st_ino}", *lines[1:]]))
        return killed_at(step, lambda: lines_of(root, 2, mosquitto_db=True))

    n = 0
    for step in steps(kill):
        killed_at(step % 5, lambda: lines_of(root, 2, mosquitto_db=True))
        lines_of(root, 2, mosquitto_db=True)
        n, now = content(root)
        assert n == 2 and {name for name in now if isinstance(name, bytes)} == (set() if removed else {b"theirs"})
        asides = [one for one in root.iterdir() if one.name.startswith(("removed.", "replaced.")) and (one / layout.FILE).exists()]
        assert [described([one / "worker.1", one / "worker.2"], Spread(2, found.key)) for one in asides] == [before]
    assert n == 2


def test_a_full_disk_leaves_the_old_stores(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(root)
    monkeypatch.setattr(layout, "_free", lambda path: 1000)
    with pytest.raises(OSError, match=r"from one process to 3 workers: No space left on device. Expected about 10\d MB") as caught:
        lines_of(root, 3)
    assert "They are as before." in str(caught.value)
    monkeypatch.undo()
    monkeypatch.setattr(store.NewStore, "finish", fail)
    with pytest.raises(OSError, match="No space left on device"):
        lines_of(root, 3)
    monkeypatch.undo()
    assert content(root) == before and clean(root)
    lines_of(root, 3)
    assert content(root) == (3, before[1])


def fail(one: store.NewStore) -> None:
    raise store.StoreError(f"{one.path}: No space left on device")


def test_stores_that_another_process_uses_do_not_change(root: Path) -> None:
    lines_of(root, 2)
    before = content(root)
    lock = store.open_store(str(root / "worker.2"))
    try:
        with pytest.raises(OSError, match=r"in use|used by|another"):
            lines_of(root, 3)
    finally:
        lock.close()
    assert content(root) == before and clean(root)


def test_a_missing_store_is_reported(root: Path) -> None:
    lines_of(root, 3)
    shutil.rmtree(root / "worker.2")
    for n in (3, 2, 1):
        with pytest.raises(OSError, match=r"the folder worker\.2 is missing"):
            lines_of(root, n)
    (root / "worker.2").mkdir()
    assert lines_of(root, 3) == []
    lines_of(root, 2)
    assert content(root)[0] == 2


def test_a_number_that_was_changed_by_hand_is_reported(root: Path) -> None:
    lines_of(root, 3)
    text = json.loads((root / "workers").read_text())
    (root / "workers").write_text(json.dumps({**text, "workers": 2}))
    with pytest.raises(OSError, match=r"names 2 workers, and there is a folder worker\.3"):
        lines_of(root, 2)
    (root / "workers").write_text(json.dumps({**text, "workers": 4}))
    with pytest.raises(OSError, match=r"the folder worker\.4 is missing"):
        lines_of(root, 4)
    (root / "workers").write_text("{")
    with pytest.raises(OSError, match="cannot be read"):
        lines_of(root, 1)


def test_a_store_of_another_broker_is_reported(root: Path, made: Path, tmp_path: Path) -> None:
    lines_of(root, 2)
    other = Path(shutil.copytree(made, tmp_path / "other" / "mosquitto.db.store"))
    lines_of(other, 2)
    shutil.rmtree(root / "worker.1")
    shutil.copytree(other / "worker.1", root / "worker.1")
    with pytest.raises(OSError, match=r"worker\.1 is the store of another broker"):
        lines_of(root, 2)
    shutil.rmtree(root / "worker.1")
    shutil.copytree(root / "worker.2", root / "worker.1")
    with pytest.raises(OSError, match="of another worker"):
        lines_of(root, 2)


def test_a_damaged_store_is_divided_as_far_as_it_can_be_read_and_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BATCH_BYTES", 500)      # damage in the last batch looks like one that was not committed
    monkeypatch.setattr(layout, "_new_layout", lambda count: layout.Layout(count, bytes(range(16)), "name"))
    lines_of(root, 2)
    _, before = content(root)
    segment = max((root / "worker.1").glob("segment.*"), key=lambda one: len(one.read_bytes().rstrip(b"\0")))
    data = bytearray(segment.read_bytes())
    middle = len(data.rstrip(b"\0")) // 2
    data[middle:middle + 40] = bytes(x ^ 0xFF for x in data[middle:middle + 40])
    segment.write_bytes(data)
    assert "damaged places" in "\n".join(lines_of(root, 1))
    n, after = content(root)
    assert n == 1 and after != before and set(after)
    kept = next(root.glob("replaced.*"))
    assert (kept / "worker.1").exists() and (kept / "workers").exists()


def test_the_progress_of_a_large_store_is_logged(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "REPORT_EVERY_S", 0.0)
    lines = lines_of(root, 2)
    assert lines[0].startswith("Dividing the stores in") and "%" in lines[1]
    assert "The stores are divided: " in lines[-1]
