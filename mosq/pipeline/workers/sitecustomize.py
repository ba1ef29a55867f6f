"""In Spark's Python workers only (session.py puts this folder on their path): pyspark from where it is installed, not
from the zip beside it, which Spark puts first. The zip holds no compiled modules, so that each process compiles what it
imports: 1.3 s of CPU instead of 0.45, in each of the five or so processes that a query starts."""

import sys
from importlib.machinery import PathFinder
from pathlib import Path

ZIP = "/pyspark/python/lib/pyspark.zip"
# of an installed package only: elsewhere the zip may be another version, or all that there is
last = [path for path in sys.path if path.endswith(ZIP) and Path(path[: -len(ZIP)], "pyspark/__init__.py").is_file()]
here = str(Path(__file__).parent)
sys.path[:] = [path for path in sys.path if path not in (*last, here)] + last

# the one that this one hides
if (_hidden := PathFinder.find_spec("sitecustomize")) is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(sys.modules[__name__])
