"""The build backend that pip calls: setuptools' own, which asks for Cython only where the C files are missing. A source distribution
has them in generated/, so its build needs no Cython."""

import tomllib
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401
    build_editable,
    build_sdist,
    build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

ROOT = Path(__file__).resolve().parent.parent


def _cython() -> list[str]:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]["build"]
    return [one for one in declared if one.startswith("cython")]


def _for_a_build() -> list[str]:
    return [] if (ROOT / "generated").is_dir() else _cython()


def get_requires_for_build_wheel(config_settings: dict[str, object] | None = None) -> list[str]:
    """Return the requirements of a wheel."""
    return build_meta.get_requires_for_build_wheel(config_settings) + _for_a_build()


def get_requires_for_build_editable(config_settings: dict[str, object] | None = None) -> list[str]:
    """Return the requirements of a build in place."""
    return build_meta.get_requires_for_build_editable(config_settings) + _for_a_build()


def get_requires_for_build_sdist(config_settings: dict[str, object] | None = None) -> list[str]:
    """Return the requirements of a source distribution, which ships the C files."""
    return build_meta.get_requires_for_build_sdist(config_settings) + _for_a_build()
