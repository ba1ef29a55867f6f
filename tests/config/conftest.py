"""Write small configuration files and read them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mosq.config.errors import ConfigError
from mosq.config.model import Config
from mosq.config.parser import load_config

Read = Callable[..., Config]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Provide read("listener 1883", ...), which returns the configuration of these lines."""

    def read_lines(*lines: str | bytes) -> Config:
        path = tmp_path / "mosq.conf"
        path.write_bytes(b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines))
        return load_config(str(path))

    return read_lines


@pytest.fixture
def refuse(read: Read, tmp_path: Path) -> Callable[..., str]:
    """Provide refuse("prot 1883"), which returns the error; its last line must name the last line of the file."""

    def refuse_lines(*lines: str | bytes, line: int | None = None) -> str:
        with pytest.raises(ConfigError) as caught:
            read(*lines)
        said, where = str(caught.value).split("\n")
        assert where == f"Error found at {tmp_path / 'mosq.conf'}:{line or len(lines)}."
        assert said.startswith("Error: ")
        return said.removeprefix("Error: ")

    return refuse_lines
