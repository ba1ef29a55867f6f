"""Find the Java of this machine."""

import os
import re
import shutil
import subprocess
from pathlib import Path


def find() -> Path | None:
    """Return the java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    if home and (found := Path(home, "bin/java")).exists():
        return found
    on_path = shutil.which("java")
    return Path(on_path) if on_path else None


def version(program: Path) -> int | None:
    """Return the major version of a java program, or None if it does not run."""
    try:
        output = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(found[1]) if found else None
