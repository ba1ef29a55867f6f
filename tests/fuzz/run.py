"""Build the fuzz targets with clang, ASan and UBSan, and run each: ``python tests/fuzz/run.py --seconds 30``.

Each target begins with the seeds of the tests and with the inputs in tests/fuzz/corpora, which earlier runs have found.
`--corpora` runs each of these inputs once. `--translate` finds the functions of cext/ that a target no longer calls correctly. `--save` reduces the inputs that this machine has found to a few with the same
coverage, and packs them into tests/fuzz/corpora.

Exit status: 0: all targets ran; 1: a target crashed (its input is under build/fuzz/crashes/); 2: the build failed.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from setuptools import Extension

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "fuzz"
LIB = BUILD / "lib"
sys.path.insert(0, str(ROOT))

CODEC = ["frame", "utf8", "properties", "connect", "publish", "ack", "subscribe", "unsubscribe", "disconnect", "auth"]
TOPIC = ["name", "filters"]
NET = ["websocket", "upgrade", "proxy", "relay_head", "ticket"]
RECORDS = ["tls_records"]
LINK = ["as_client", "lines"]
WORKERS = ["link_frame", "link_bytes"]
SESSION = ["record"]
STORE = ["segments", "raw_segments"]
JOURNAL = ["journal_blocks", "journal_raw"]
MODULE = {
    **dict.fromkeys(CODEC, "fuzz_codec"),
    **dict.fromkeys(TOPIC, "fuzz_topic"),
    **dict.fromkeys(NET, "fuzz_net"),
    **dict.fromkeys(RECORDS, "fuzz_records"),
    **dict.fromkeys(LINK, "fuzz_link"),
    **dict.fromkeys(WORKERS, "fuzz_links"),
    **dict.fromkeys(SESSION, "fuzz_session"),
    **dict.fromkeys(STORE, "fuzz_store"),
    **dict.fromkeys(JOURNAL, "fuzz_journal"),
}
CHECKS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
CFLAGS = ["-O2", "-g1", "-fPIC", "-fno-strict-aliasing", "-fno-omit-frame-pointer", "-Wno-unused-function", "-DNDEBUG"]
# the same directives as in setup.py
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
}


def clang() -> str:
    for name in ("clang", *(f"clang-{v}" for v in range(20, 13, -1))):
        if shutil.which(name):
            return name
    sys.exit("clang is not installed: apt-get install clang")


def sources() -> list[str]:
    rooms = [f"cext/codec/{m}.pyx" for m in ("frame", "utf8", "properties", "decode", "encode")]
    rooms.append("tests/fuzz/fuzz_codec.pyx")
    rooms += ["cext/topic/name.pyx", "tests/fuzz/fuzz_topic.pyx", "cext/codec/as_client.pyx", "cext/topic/lines.pyx", "tests/fuzz/fuzz_link.pyx"]
    rooms += [f"cext/base/{m}.pyx" for m in ("cells", "hash", "slab")] + ["cext/topic/table.pyx"]
    rooms += [f"cext/link/{m}.pyx" for m in ("frame", "sending", "waiting", "identities", "routes", "out", "inward", "links")]
    rooms += ["tests/fuzz/fuzz_links.pyx"]
    rooms += ["cext/session/record.pyx", "tests/fuzz/fuzz_session.pyx"]
    rooms += [f"cext/net/{m}.pyx" for m in ("accept_key", "websocket", "upgrade", "proxy", "relay_head", "ticket")] + ["tests/fuzz/fuzz_net.pyx"]
    rooms += ["cext/net/records.pyx", "tests/fuzz/fuzz_records.pyx"]
    rooms += [f"cext/store/{m}.pyx" for m in ("crc", "file", "format", "replay")] + ["tests/fuzz/fuzz_store.pyx"]
    return rooms + [f"cext/journal/{m}.pyx" for m in ("format", "listing", "walk", "reader", "columns")] + ["tests/fuzz/fuzz_journal.pyx"]


def run(command: list[str]) -> None:
    if subprocess.run(command, check=False).returncode:
        print("failed:", " ".join(command), file=sys.stderr)
        raise SystemExit(2)


def translate() -> "list[Extension]":
    """Translate each room and each target to C, and return the modules."""
    from Cython.Build import cythonize

    os.chdir(ROOT)
    options = {"build_dir": str(BUILD / "cython"), "compiler_directives": DIRECTIVES, "quiet": True}
    return cythonize(sources(), **options)  # type: ignore[no-untyped-call,no-any-return]


def build(cc: str) -> Path:
    """Build the harness, and each room as a separate module under LIB; return the harness."""
    include = sysconfig.get_paths()["include"]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for ext in translate():
        out = LIB / (ext.name.replace(".", "/") + suffix)
        source = Path(ext.sources[0])
        if out.exists() and out.stat().st_mtime > source.stat().st_mtime:
            continue
        print(f"building {ext.name}", flush=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        libraries = [f"-l{name}" for name in ext.libraries]
        run([cc, "-shared", *CFLAGS, *CHECKS, "-fsanitize=fuzzer-no-link", f"-I{include}", str(source), "-o", str(out), *libraries])
    harness = BUILD / "harness"
    libdir, version = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LDVERSION")
    run(
        [
            cc,
            *CFLAGS,
            *CHECKS,
            "-fsanitize=fuzzer",
            f"-I{include}",
            "tests/fuzz/harness.c",
            "-o",
            str(harness),
            "-Wl,--export-dynamic",
            f"-L{libdir}",
            f"-Wl,-rpath,{libdir}",
            f"-lpython{version}",
        ]
    )
    return harness


def environment(target: str) -> dict[str, str]:
    """Return the variables that the harness reads."""
    return os.environ | {
        "MOSQ_FUZZ_PATH": str(LIB),
        "MOSQ_FUZZ_MODULE": MODULE[target],
        "MOSQ_FUZZ_TARGET": target,
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONHOME": sys.base_prefix,
    }


def inputs(target: str) -> Path:
    """Write the seeds and the packed inputs of a target into its folder, beside those of earlier runs here."""
    from tests.fuzz import corpora, corpus

    folder = BUILD / "corpus" / target
    corpus.write(target, folder)
    corpora.unpack(target, folder)
    return folder


def save(harness: Path, target: str) -> None:
    """Pack the inputs of a target: the fewest with the coverage of all, the smallest first."""
    from tests.fuzz import corpora

    folder = BUILD / "merged" / target
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [str(harness), "-merge=1", f"-max_len={corpora.INPUT_MAX}", "-timeout=10", str(folder), str(inputs(target))]
    done = subprocess.run(command, env=environment(target), capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        sys.exit(f"{target}: the inputs could not be reduced:\n{done.stderr[-2000:]}")
    found = [path.read_bytes() for path in folder.iterdir()]
    kept, size = corpora.pack(target, found)
    print(f"{target:14} {kept:5} of {len(found):5} inputs, {size:7,} bytes", flush=True)


def fuzz(harness: Path, target: str, limit: list[str], expected_s: float) -> bool:
    """Run one target and print its result; return False if it crashed."""
    folder = inputs(target)
    crashes = BUILD / "crashes"
    crashes.mkdir(exist_ok=True)
    log = BUILD / f"{target}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [
                str(harness),
                str(folder),
                *limit,
                "-max_len=2048",
                "-timeout=10",
                "-print_final_stats=1",
                f"-artifact_prefix={crashes}/{target}-",
            ],
            stdout=out,
            stderr=out,
            env=environment(target),
        )
        start = time.monotonic()
        while process.poll() is None:
            if sys.stdout.isatty():
                done = f" of {expected_s:.0f}" if expected_s else ""
                print(f"\r{target:12} {time.monotonic() - start:4.0f}{done} s ", end="", flush=True)
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                continue
    text = log.read_text(errors="replace")
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", text)
    took = time.monotonic() - start
    coverage = re.findall(r" cov: (\d+)", text)
    n = int(runs[1]) if runs else 0
    verdict = "ok" if process.returncode == 0 else f"CRASHED, see {log.relative_to(ROOT)}"
    print(
        f"\r{target:12} {n:12,} runs {n / took:12,.0f} runs/s  {coverage[-1] if coverage else '?':>5} edges  {verdict}",
        flush=True,
    )
    return process.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=30, help="how long each target runs (default: 30)")
    parser.add_argument("--runs", type=int, help="how many inputs each target gets, instead of --seconds")
    parser.add_argument("--corpora", action="store_true", help="run each packed input and each seed once, without new ones")
    parser.add_argument("--save", action="store_true", help="pack the inputs of this machine into tests/fuzz/corpora")
    known = list(MODULE)
    parser.add_argument("--translate", action="store_true", help="translate the targets to C and run none; `make lint` does that")
    parser.add_argument("targets", nargs="*", metavar="target", help=f"which: {', '.join(known)} (default: all)")
    args = parser.parse_args()
    unknown = [t for t in args.targets if t not in known]
    if unknown:
        parser.error(f"unknown targets: {', '.join(unknown)}")
    if args.translate:
        translate()
        return 0
    harness = build(clang())
    if args.save:
        for target in args.targets or known:
            save(harness, target)
        return 0
    if args.corpora:
        shutil.rmtree(BUILD / "corpus", ignore_errors=True)     # inputs that only this machine has are left out
        limit = ["-runs=0"]
    else:
        limit = [f"-runs={args.runs}"] if args.runs else [f"-max_total_time={args.seconds}"]
    ran = [fuzz(harness, target, limit, 0 if args.runs or args.corpora else args.seconds) for target in args.targets or known]
    return 0 if all(ran) else 1


if __name__ == "__main__":
    sys.exit(main())
