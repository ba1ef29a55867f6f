"""Builds the compiled parts of mosq: setup.py's `build_ext`.

    build_ext --inplace                 the units of a wheel: mosq/_core, mosq/_tls, mosq/_bench, mosq/_redis
    build_ext --inplace --tests         these, and the interfaces for tests: cext/testing/*
    build_ext --inplace --separate      each module by itself, for work on cext/; Python finds their names through mosq/_core.py

A compiled file uses only the stable interface of CPython 3.11 (`abi3`), so one serves this Python and all newer ones
(docs/adr/0016). A source distribution has the C files in generated/, so its build needs no Cython.

MOSQ_CFLAGS and MOSQ_LDFLAGS are appended to the flags, MOSQ_BUILD_JOBS is the number of processes, and MOSQ_BUILD=none builds
nothing. MOSQ_WARNINGS=1, which .ci/run sets, makes the compiler search for doubtful code and report it as an error.

Contents decide which outputs are made again, not times: build/keys has, for each output, a key of the text, the flags and the
versions that it was made of, and its digest. An output is renamed when it is whole, so an interrupted build leaves no partial one.
"""

import concurrent.futures
import contextlib
import functools
import gc
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

import unit
from progress import Progress

ROOT = Path(__file__).resolve().parent.parent
STARTED_NS = time.time_ns()     # before the sources are read
CFLAGS = ["-O2", "-g1", "-fvisibility=hidden", "-fno-strict-aliasing", "-fno-semantic-interposition",
          "-fstack-protector-strong"]
# The stable interface of CPython 3.11. Without the interpreter's own headers Cython asks the module `inspect` for these flags of
# code objects (the values are of the language's documentation); to import it takes two thirds of a broker's start.
STABLE = ["-DPy_LIMITED_API=0x030B0000", "-DCO_OPTIMIZED=1", "-DCO_NEWLOCALS=2", "-DCO_VARARGS=4", "-DCO_VARKEYWORDS=8",
          "-DCO_GENERATOR=32", "-DCO_COROUTINE=128", "-DCO_ASYNC_GENERATOR=512"]
SUFFIX = ".abi3.so"
SHIM = "cext/shim"              # folder of the C sources of mosq._shim
# Modules that Cython imports for what STABLE defines, or that import more than they are needed for.
LIGHTER = {'PyImport_ImportModule("inspect")': 'PyImport_ImportModule("builtins")',
           'PyImport_ImportModule("collections.abc")': 'PyImport_ImportModule("_collections_abc")'}
# gcc needs a fifth of its time for warnings. Users cannot act on them, so only .ci/run asks for them.
WARNINGS = ["-Wno-unused-function", "-Wno-unused-result", "-Wno-sign-compare", "-Wno-format-truncation",
            "-Werror=maybe-uninitialized", "-Werror=return-type"]
NO_WARNINGS = ["-Wno-all", "-w"]
FORTIFY = ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]          # a sanitizer brings its own
# What only tests load need not be fast; with less optimization gcc no longer sees that some variables are set.
TEST_CFLAGS = ["-O1", "-Wno-maybe-uninitialized", "-DMOSQ_RULES_OFF"]
LDFLAGS = ["-Wl,-z,relro,-z,now,-z,noexecstack"]
DIRECTIVES = {"language_level": 3, "boundscheck": False, "wraparound": False, "initializedcheck": False, "cdivision": True,
              "embedsignature": True, "emit_code_comments": False}
# Functions that Python calls, and what Cython adds for them: no message passes through them. Compiled for size, they take a third
# less time and space, and a call of one is taken as unlikely.
PYTHON_FUNCTION = re.compile(
    r"^static (?:CYTHON_SMALL_CODE )?((?:CYTHON_UNUSED )?[A-Za-z_][\w ]*[ *]+__pyx_(?:pw|pf|pymod|getprop|setprop|tp_new|tp_dealloc|tp_traverse|tp_clear)_"
    r"|(?:PyObject|void|int|PyTypeObject|PyCodeObject|size_t|long|Py_ssize_t|const char)[ *]*__Pyx_\w+\()", re.MULTILINE)
REDIRECT = '''"""The names of a build with separate modules. dev/build --separate writes this file, and `make build` removes it."""

from importlib import import_module

MODULES = {modules}


def __getattr__(name: str) -> object:
    if name not in MODULES:
        raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")
    return getattr(import_module(MODULES[name]), name)
'''


# ---------------------------------------------------------------- Cython, in processes of its own

def translate(source: str, output: str, name: str, folder: str) -> str:
    """Run Cython on a file, with `folder` as the root of includes and cimports. Returns its errors as text; performance hints
    and warnings are errors."""
    from Cython.Compiler import ExprNodes, Options, PyrexTypes, Symtab
    from Cython.Compiler.Errors import error
    from Cython.Compiler.Main import CompilationOptions, compile_single

    def hint_is_an_error(pos: object, message: str, env: object = None) -> None:
        # A nogil function that may raise re-takes the GIL after each call: on a message's path that is a defect.
        error(pos, f"performance hint: {message}")

    for module in (ExprNodes, PyrexTypes, Symtab):
        if hasattr(module, "performance_hint"):
            module.performance_hint = hint_is_an_error
    Options.warning_errors = True
    os.chdir(folder)
    options = CompilationOptions(Options.default_options, compiler_directives=DIRECTIVES, output_file=output, include_path=["."])
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        failed = compile_single(source, options, full_module_name=name).num_errors
    if failed:
        return errors.getvalue() or "Cython failed"
    made = Path(output)
    text = PYTHON_FUNCTION.sub(r"static __attribute__((cold)) \1", made.read_text("utf-8"))
    for heavy, light in LIGHTER.items():
        text = text.replace(heavy, light)
    made.write_text(text, "utf-8")
    return ""


def serve() -> None:
    """Translate what stdin names, a JSON list in each line, until it ends."""
    gc.disable()            # a translation's trees stay until its end: to search them for garbage takes a third of its time
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        gc.collect()
        try:
            errors = translate(*json.loads(line))
        except Exception as error:
            errors = f"{type(error).__name__}: {error}"
        print(json.dumps(errors), file=answers, flush=True)


class Translators:
    """A process with Cython for each thread that asks: it takes 0.3 s to load."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._all: list[subprocess.Popen[str]] = []

    def translate(self, source: str, output: Path, name: str, folder: Path) -> str:
        if not hasattr(self._own, "process"):
            self._own.process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                 text=True, cwd=ROOT)
            self._all.append(self._own.process)
        process = self._own.process
        print(json.dumps([source, str(output), name, str(folder)]), file=process.stdin, flush=True)
        answer = process.stdout.readline()
        return json.loads(answer) if answer else "Cython's process died"

    def end(self) -> None:
        for process in self._all:
            process.stdin.close()
            process.wait()
            process.stdout.close()


# ---------------------------------------------------------------- one extension

class Part:
    """An extension module: its sources, the C file that Cython makes of them, the .so."""

    def __init__(self, name: str, folder: Path, source: str, texts: dict[Path, str], libraries: list[str], for_tests: bool) -> None:
        self.name, self.folder, self.source, self.texts, self.libraries = name, folder, source, texts, libraries
        self.for_tests = for_tests
        self.size = sum(map(len, texts.values()))

    @property
    def short(self) -> str:
        return self.name.removeprefix("mosq.").removeprefix("cext.")

    def cflags(self) -> list[str]:
        """Flags of the environment come last: they win."""
        given = os.environ.get("MOSQ_CFLAGS", "").split()
        fortify = [] if any(one.startswith("-fsanitize") for one in given) else FORTIFY
        warnings = WARNINGS if os.environ.get("MOSQ_WARNINGS") else NO_WARNINGS
        return [*CFLAGS, *STABLE, *fortify, *warnings, *(TEST_CFLAGS if self.for_tests else []), *given]

    def ldflags(self) -> list[str]:
        return [*LDFLAGS, *os.environ.get("MOSQ_LDFLAGS", "").split(), *(f"-l{name}" for name in self.libraries)]


class ShimPart(Part):
    """The shim of native plugins: C sources without Cython and without Python. A broker with a native plugin loads it."""

    def __init__(self) -> None:
        texts = {path.relative_to(ROOT): path.read_text("utf-8") for path in sorted((ROOT / SHIM).glob("*.[ch]"))}
        super().__init__("mosq._shim", ROOT, SHIM, texts, ["crypto", "dl"], False)

    def cflags(self) -> list[str]:
        return [one for one in super().cflags() if one not in STABLE]

    def c_files(self) -> list[Path]:
        return [ROOT / path for path in self.texts if path.suffix == ".c"]


def cython_version() -> str:
    """Return the version of Cython; "" if it is not installed."""
    try:
        import Cython
    except ImportError:
        return ""
    return str(Cython.__version__)


def source_key(part: Part) -> str:
    """Return the key of a part's sources, whichever versions translate them."""
    return key_of(part.source, {str(path): text for path, text in part.texts.items()})


def shipped_c(root: Path, part: Part) -> tuple[Path, Path]:
    """Return the places of a part's C file in a source distribution, and of the key of its sources."""
    return root / "generated" / f"{part.name}.c", root / "generated" / f"{part.name}.key"


def key_of(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


class Made:
    """Record the text, flags and versions that each output was made of, in a folder of keys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def is_current(self, output: Path, key: str) -> bool:
        note = self._note(output)
        return output.exists() and note.exists() and note.read_text() == self._text(output, key)

    def put(self, output: Path, key: str) -> None:
        self._note(output).write_text(self._text(output, key))

    def same(self, key: str) -> Path | None:
        """Return another output of this tree that was made of the same, and is still whole."""
        for note in self.folder.iterdir():
            known, _, rest = note.read_text().partition("\n")
            path = Path(rest.partition("\n")[0])
            if known == key and path.is_relative_to(ROOT) and self.is_current(path, key):
                return path
        return None

    def _text(self, output: Path, key: str) -> str:
        """Return the key, the place and the digest of the output: a damaged output is made again."""
        return f"{key}\n{output.resolve()}\n{hashlib.sha256(output.read_bytes()).hexdigest()}"

    def _note(self, output: Path) -> Path:
        return self.folder / str(output.resolve()).removeprefix(f"{ROOT}/").strip("/").replace("/", "-")


def shim_parts() -> list[Part]:
    """Return the part of native plugins, if its sources are there."""
    return [ShimPart()] if (ROOT / SHIM).is_dir() else []


@functools.cache
def has_hiredis() -> bool:
    """Return whether libhiredis is there as an archive, which becomes a part of mosq._redis: versions of the shared library do not
    fit each other, and Debian releases have different ones."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    try:
        place = subprocess.run([*compiler, "-print-file-name=libhiredis.a"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return False
    return os.path.isabs(place.strip())


def is_left_out(libraries: list[str]) -> bool:
    """Return whether a part is left out, because its library is missing: a broker without a cluster does not need it."""
    return ":libhiredis.a" in libraries and not has_hiredis()


def unit_parts(sources: unit.Sources, build: Path, tests: bool) -> list[Part]:
    """Return the parts of a build with units. Raises unit.UnitError."""
    out = []
    for name, roots in {**unit.UNITS, **(sources.test_units() if tests else {})}.items():
        one = unit.Unit(name, roots, sources)
        if is_left_out(one.libraries):
            continue
        texts = one.files()
        main = next(iter(texts))
        out.append(Part(name, build / "units" / name, str(main), texts, one.libraries, name not in unit.UNITS))
    return [*out, *shim_parts()]


def separate_parts(sources: unit.Sources) -> list[Part]:
    """Return the parts of a build with separate modules: each .pyx, with the declarations that it cimports."""
    out = []
    for path in sorted((sources.root / unit.PACKAGE).rglob("*.pyx")):
        name = ".".join(path.relative_to(sources.root).with_suffix("").parts)
        texts = {one.path: one.text for one in sources.declarations_for(name)}
        libraries = unit.libraries_of(path.read_text("utf-8"))
        if not is_left_out(libraries):
            out.append(Part(name, sources.root, str(path.relative_to(sources.root)), texts, libraries, f".{unit.TEST_ROOM}." in name))
    return [*out, *shim_parts()]


# ---------------------------------------------------------------- all of them

class BuildError(Exception):
    """A part cannot be built; the text is the output of Cython or of the compiler."""


class Builder:
    """`compile`: the compiler's command without flags of ours; `link`: the linker's; `place`: name of a part -> its .so."""

    def __init__(self, compile: list[str], link: list[str], place: dict[str, Path], build: Path, jobs: int, force: bool) -> None:
        # A Python from pyenv adds its own folder as a search path for libraries: a wheel must not name a folder of this machine.
        link = [word for word in link if not word.startswith("-Wl,-rpath")]
        self.compile, self.link, self.place, self.build, self.jobs, self.force = compile, link, place, build, jobs, force
        self.translators, self.made = Translators(), Made(build / "keys")
        self.versions = (cython_version(), DIRECTIVES, PYTHON_FUNCTION.pattern, LIGHTER)
        self.tools = (sys.version, compile, link)

    def run(self, parts: list[Part]) -> None:
        """Build the parts that are not current, the largest first. Raises BuildError."""
        waiting = [part for part in parts if self.force or not self.made.is_current(self.place[part.name], self.key(part))]
        if waiting:
            self._build_all(waiting)
        # mosq/built.py compares times: a source that changed during the build is newer than the outputs
        for part in parts:
            os.utime(self.place[part.name], ns=(STARTED_NS, STARTED_NS))

    def _build_all(self, waiting: list[Part]) -> None:
        waiting.sort(key=lambda part: -part.size)
        with Progress(2 * len(waiting)) as progress, concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            try:
                futures = [pool.submit(self._build, part, progress) for part in waiting]
                for future in concurrent.futures.as_completed(futures):
                    future.result()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
            finally:
                self.translators.end()

    def key(self, part: Part) -> str:
        return key_of(self.versions, self.tools, part.source, part.texts, part.cflags(), part.ldflags())

    def _build(self, part: Part, progress: Progress) -> None:
        so, key = self.place[part.name], self.key(part)
        same = None if self.force else self.made.same(key)
        if same is not None:                    # a wheel of a tree that is built in place
            so.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(same, so.with_name(so.name + ".new")).replace(so)
            self.made.put(so, key)
            return
        if isinstance(part, ShimPart):
            with progress.step(f"{part.short}: C"):
                self._compile(part, part.c_files(), progress)
            return
        with progress.step(f"{part.short}: Cython"):
            c = self.translated(part)
        with progress.step(f"{part.short}: C"):
            self._compile(part, [c], progress)

    def translated(self, part: Part) -> Path:
        """Return the C file of a part: the one that is shipped with these sources, or one that Cython makes now. Raises
        BuildError."""
        c, note = shipped_c(ROOT, part)
        if c.exists() and note.exists() and note.read_text() == source_key(part):
            return c
        if not cython_version():
            raise BuildError(f"{part.source} is not the one that {c.relative_to(ROOT)} was made of, and Cython is not installed; "
                             "install it (pip install 'cython>=3.3,<3.4'), or unpack the source distribution again")
        c = self.build / "c" / f"{part.name}.c"
        key = key_of(self.versions, part.source, part.texts)
        if self.force or not self.made.is_current(c, key):
            self._translate(part, c)
            self.made.put(c, key)
        return c

    def ship(self, parts: list[Part], root: Path) -> None:
        """Copy the C file of each part into `root`, a source distribution. Raises BuildError."""
        try:
            for part in parts:
                if isinstance(part, ShimPart):
                    continue                    # its sources are C
                c, note = shipped_c(root, part)
                c.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.translated(part), c)
                note.write_text(source_key(part))
        finally:
            self.translators.end()

    def _translate(self, part: Part, c: Path) -> None:
        if part.folder != ROOT:
            for path, text in part.texts.items():
                file = part.folder / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, "utf-8")
        c.parent.mkdir(parents=True, exist_ok=True)
        c.unlink(missing_ok=True)
        errors = self.translators.translate(part.source, c, part.name, part.folder)
        if errors:
            raise BuildError(errors)

    def _compile(self, part: Part, sources: list[Path], progress: Progress) -> None:
        so = self.place[part.name]
        made, folder = so.with_name(so.name + ".new"), self.build / "c"
        objects = [folder / (f"{part.name}.o" if len(sources) == 1 else f"{part.name}.{c.stem}.o") for c in sources]
        folder.mkdir(parents=True, exist_ok=True)
        so.parent.mkdir(parents=True, exist_ok=True)
        include = [f"-I{sysconfig.get_path('include')}", f"-I{sysconfig.get_path('platinclude')}"]
        for c, obj in zip(sources, objects, strict=True):
            self._call([*self.compile, *include, *part.cflags(), "-c", str(c), "-o", str(obj)], progress)
        self._call([*self.link, *map(str, objects), "-o", str(made), *part.ldflags()], progress)
        for obj in objects:
            obj.unlink()
        made.replace(so)
        self.made.put(so, self.key(part))

    def _call(self, command: list[str], progress: Progress) -> None:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise BuildError(f"{' '.join(command)}\n{done.stderr}")
        if done.stderr.strip():
            progress.report(done.stderr)


def tidy(parts: list[Part], place: dict[str, Path], separate: bool) -> None:
    """Remove what a build of the other kind has left in the folders of the sources, and what has lost its source."""
    kept = set(place.values())
    note = ROOT / "build/kind"
    kind = "separate" if separate else "units"
    same = note.exists() and note.read_text() == kind
    note.write_text(kind)
    for so in (ROOT / unit.PACKAGE).rglob("*.so"):
        source = so.with_name(so.name.split(".")[0] + ".pyx")
        if so not in kept and not (same and unit.TEST_ROOM in so.parts and source.exists() and so.name.endswith(SUFFIX)):
            so.unlink()
    for name, roots in unit.UNITS.items():
        file = ROOT.joinpath(*name.split(".")).with_suffix(".py")
        if separate:
            names = unit.Unit(name, roots, unit.Sources(ROOT)).public_names()
            file.write_text(REDIRECT.format(modules=json.dumps(names, indent=4)))
            for so in file.parent.glob(file.stem + ".*.so"):
                so.unlink()
        else:
            file.unlink(missing_ok=True)
            for so in file.parent.glob(file.stem + ".*.so"):
                if so not in kept:              # Python prefers a file for its own version to one for all
                    so.unlink()


if __name__ == "__main__":
    serve()
