"""Builds the compiled units with dev/compiling.py; everything else is declared in ``pyproject.toml``."""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.errors import CompileError

sys.path.insert(0, str(Path(__file__).resolve().parent / "dev"))
import compiling
import unit


def extension(name):
    return Extension(name, [], py_limited_api=True)


class BuildUnits(build_ext):
    """See dev/compiling.py."""

    user_options = [*build_ext.user_options, ("tests", None, "also the interfaces for tests"),
                    ("separate", None, "each module of cext/ by itself")]
    boolean_options = [*build_ext.boolean_options, "tests", "separate"]

    def initialize_options(self):
        super().initialize_options()
        self.tests = self.separate = 0

    def finalize_options(self):
        self.parts = []
        if os.environ.get("MOSQ_BUILD") != "none":
            sources = unit.Sources(compiling.ROOT)
            try:
                self.parts = compiling.separate_parts(sources) if self.separate else \
                    compiling.unit_parts(sources, Path("build").absolute(), bool(self.tests))
            except unit.UnitError as error:
                raise CompileError(f"the modules are no unit:\n{error}") from None
        self.distribution.ext_modules = [extension(part.name) for part in self.parts]
        super().finalize_options()

    def run(self):
        if not self.parts:
            return
        # not setuptools' own: that would build in build/lib*, from where a wheel takes whatever it finds
        super(build_ext, self).run()

    def build_extensions(self):
        place = {part.name: Path(self.get_ext_fullpath(part.name)) for part in self.parts}
        jobs = int(os.environ.get("MOSQ_BUILD_JOBS", os.cpu_count() or 1))
        builder = compiling.Builder(self.compiler.compiler_so, self.compiler.linker_so, place, Path("build").absolute(), jobs,
                                    bool(self.force))
        try:
            builder.run(self.parts)
        except compiling.BuildError as error:
            raise CompileError(str(error)) from None
        if self.inplace:
            compiling.tidy(self.parts, place, bool(self.separate))

    def get_outputs(self):
        return [self.get_ext_fullpath(part.name) for part in self.parts]

    def get_source_files(self):
        return []


class ShipC(sdist):
    """Adds the C files that Cython makes, so that a build from this distribution needs no Cython."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        sources, build = unit.Sources(compiling.ROOT), Path("build").absolute()
        try:
            compiling.Builder([], [], {}, build, 1, False).ship(compiling.unit_parts(sources, build, False), Path(base_dir))
        except (compiling.BuildError, unit.UnitError) as error:
            raise CompileError(str(error)) from None


# a wheel with compiled modules, for CPython 3.11 and all newer ones: known before build_ext knows them
setup(ext_modules=[extension("mosq._core")] if os.environ.get("MOSQ_BUILD") != "none" else [],
      options={"bdist_wheel": {"py_limited_api": "cp311"}}, cmdclass={"build_ext": BuildUnits, "sdist": ShipC})
