"""Test the command line of `mosq bench`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mosq.tools.bench import parquet
from mosq.cli.commands_bench import bench
from mosq.tools.bench.report import lines
from mosq.tools.bench.result import Phase, Result
from mosq.tools.bench.scenarios import SCENARIOS
from mosq.tools.bench.spec import Spec
from mosq.cli.commands import main
from tests.bench.fake import Fake
from tests.harness.broker import free_port
from mosq.tools.extras import install_advice

ROOT = Path(__file__).parents[2]
FEW = ("--publishers", "3", "--messages", "300")


def typed(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["bench", *arguments])
    return status, *capfd.readouterr()


@pytest.mark.parametrize(("arguments", "words"), [
    (("--prefix", "a/+"), "--prefix: topics begin with it"), (("--prefix", "$SYS"), "--prefix: topics begin with it"),
    (("--prefix", "p" * 1001), "--prefix: expected at most 1,000 bytes"), (("-u", "u" * 65_001), "--username: expected at most"),
    (("-u", "\udcff"), "--username: expected UTF-8"), (("--start", "-h", "elsewhere"), "--start and --host"),
    (("--start", "-p", "7"), "--start and --port")])
def test_options_that_are_refused(capfd, arguments: tuple[str, ...], words: str) -> None:
    status, out, err = typed(capfd, "pairs", *arguments)
    assert (status, out) == (3, "") and words in err


def test_a_file_that_cannot_be_written_is_found_before_the_run(capfd, tmp_path: Path) -> None:
    with Fake() as fake:
        for file in (tmp_path / "none" / "x.json", tmp_path):
            assert typed(capfd, "pairs", "-p", str(fake.port), *FEW, "--json", str(file))[::2] == (
                1, f"Error: cannot write {file}: expected a file in an existing folder with write permission\n")
    assert fake.published == 0


def test_a_run(capfd) -> None:
    with Fake() as fake:
        status, out, err = typed(capfd, "pairs", "-p", str(fake.port), *FEW)
    assert (status, err) == (0, "")
    assert "published 300, delivered 300; of 300 with the warm-up: lost 0, duplicates 0, out of order 0" in out and "limited by" in out


def test_an_inexact_run_has_an_exit_status(capfd) -> None:
    with Fake(drop=10) as fake:
        status, out, _ = typed(capfd, "pairs", "-p", str(fake.port), *FEW, "--stall", "0.6")
    assert status == 2 and "lost 30" in out and "NOT EXACT" in out


def test_an_incomplete_run_has_an_exit_status(capfd) -> None:
    port = free_port()
    status, out, err = typed(capfd, "pairs", "-p", str(port))
    assert (status, out, err) == (1, "", f"Error: not complete: cannot connect to 127.0.0.1:{port}: Connection refused\n")


def test_json_of_an_aborted_run_is_marked(capfd, tmp_path: Path) -> None:
    with Fake(after=50, then="close") as fake:
        status, _, err = typed(capfd, "pairs", "-p", str(fake.port), *FEW, "-P", "s3cret", "-u", "u%i",
                               "--json", str(tmp_path / "r.json"))
    told = json.loads((tmp_path / "r.json").read_text())
    assert status == 1 and "are kept, and marked" in err
    assert (told["complete"], told["phases"][0]["complete"]) == (False, False) and told["phases"][0]["published"] >= 50
    assert "s3cret" not in json.dumps(told) and told["options"]["username"] == "u%i"


def test_standard_output_holds_json_only(capfd) -> None:
    with Fake() as fake:
        status, out, err = typed(capfd, "fan-out", "-p", str(fake.port), *FEW, "--subscribers", "2", "--json", "-")
    told = json.loads(out)
    assert told["where"] == f"127.0.0.1:{fake.port}"
    assert status == 0 and told["complete"] and told["exact"] and "fan-out:" in err
    phase = told["phases"][0]
    assert sum(n for _, _, n in phase["latency"]["buckets_ns"]) == phase["delivered"] == 600


def test_a_fresh_broker_is_started_and_ended() -> None:
    """Test the command as a separate process, as users start it."""
    done = subprocess.run([sys.executable, "-m", "mosq", "bench", "connect", "--start", "--clients", "20", "--hold", "0", "--json", "-"],
                          cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["phases"][0]["broker"]["cpu_us_per"] > 0 and "RSS" in done.stderr
    assert not Path(f"/proc/{told['options']['broker_pid']}").exists()


def test_a_fresh_broker_does_not_share_the_generators_core(capfd, monkeypatch) -> None:
    cores, seen = os.sched_getaffinity(0), []

    def measured(spec: Spec, tell: object) -> Result:
        assert spec.broker_pid is not None
        seen.append((os.sched_getaffinity(0), os.sched_getaffinity(spec.broker_pid)))
        return Result(spec.as_dict(), {}, "now")

    monkeypatch.setattr("mosq.cli.commands_bench.measure", measured)
    try:
        assert typed(capfd, "connect", "--start", "--cpu", str(min(cores)))[0] == 0
    finally:
        os.sched_setaffinity(0, cores)
    assert seen == [({min(cores)}, cores)]
    assert typed(capfd, "connect", "--start", "--broker-cpu", "100000")[::2] == (1, "Error: there is no core 100000 for the broker\n")


@pytest.mark.parametrize(("arguments", "words"), [
    (["pairs", "--start", "--cpu", "0", "--broker-cpu", "0"], "another core than --cpu"), (["pairs", "--broker-cpu", "0"], "expected --start"),
    (["pairs", "--qos", "3"], "--qos"), (["pairs", "--size", "15"], "expected 16 to 200M bytes"), (["pairs", "--size", "x"], "got 'x'"),
    (["pairs", "--mqtt", "3.1"], "expected 3.1.1 or 5"), (["payloads", "--sizes", "16,k"], "got 'k'"), (["nothing"], "nothing"),
    (["fan-in", "--publishers", "0"], "--publishers"), (["pairs", "--start", "--broker-pid", "1"], "one of them"),
    (["subscribe", "--kind", "some"], "--kind"), (["pairs", "--rate", "-1"], "--rate"), (["pairs", "--seconds", "86401"], "--seconds")])
def test_mistakes(capfd, arguments: list[str], words: str) -> None:
    status, out, err = typed(capfd, *arguments)
    assert (status, out) == (3, "") and words in err


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_explains_itself(scenario: str) -> None:
    shown = CliRunner().invoke(bench, [scenario, "--help"])
    assert shown.exit_code == 0 and "--broker-pid" in shown.output and "--json" in shown.output


def test_help_has_examples_and_every_scenario() -> None:
    shown = CliRunner().invoke(bench, ["--help"]).output
    assert max(map(len, shown.splitlines())) <= 100
    assert "Examples:" in shown and "Exit status:" in shown and all(f"  {name} " in shown for name in SCENARIOS)


def test_the_page_names_every_scenario_and_option() -> None:
    for name, command in bench.commands.items():
        page = (ROOT / "docs" / ("report.md" if name == "report" else "bench.md")).read_text()
        assert f"{name}`" in page
        for option in command.params:
            assert option.param_type_name == "argument" or f"`{max(option.opts, key=len)}" in page, (name, option.opts)


def test_the_broker_does_not_import_the_bench() -> None:
    program = "import sys, mosq.cli.start, mosq.cli.commands; sys.exit(any(name.startswith(('mosq.tools.bench', 'mosq._bench')) for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


# ---------------------------------------------------------------- Parquet

def test_rows_are_flat_and_show_whether_they_are_complete() -> None:
    phase = Phase("pairs", seconds=2.0, per=10, published=10, delivered=10, latency={"count": 10, "p99_us": 1.5, "buckets_ns": [[1, 2, 10]]})
    result = Result({"scenario": "pairs", "sizes": (1, 2)}, {"cores": 2}, "now", [phase], complete=False, why="because")
    row, = parquet.rows(result)
    assert (row["scenario"], row["run_complete"], row["why"], row["rate"]) == ("pairs", False, "because", 5.0)
    assert (row["latency_p99_us"], row["latency_buckets_ns"], row["option_sizes"]) == (1.5, [[1, 2, 10]], [1, 2])


def test_parquet_without_pyarrow_names_the_package(capfd, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    status, _, err = typed(capfd, "pairs", "-p", "1", "--parquet", str(tmp_path / "r.parquet"))
    assert (status, err) == (1, f"Error: Parquet needs pyarrow, which is not installed: {install_advice('bench')}\n")


@pytest.mark.interop
def test_parquet_can_be_read(capfd, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = str(tmp_path / "r.parquet")
    with Fake() as fake:
        status, _, _ = typed(capfd, "pairs", "-p", str(fake.port), *FEW, "--parquet", path)
    row, = pq.read_table(path).to_pylist()
    assert status == 0 and row["delivered"] == 300 and row["run_complete"] is True
    assert sum(n for _, _, n in row["latency_buckets_ns"]) == 300


def test_a_generator_at_its_limit_is_reported() -> None:
    phase = Phase("pairs", seconds=1.0, generator={"busy_share": 0.97, "cpu_us_per": 0.5, "cpu_share": 0.9}, limit="generator")
    result = Result({"scenario": "pairs"}, {}, "now", [phase])
    assert any("WARNING: pairs: the generator was the bottleneck (busy 97 %" in line for line in lines(result))
    phase.seconds = 0.04        # short phases are chance
    assert not any("WARNING" in line for line in lines(result))
