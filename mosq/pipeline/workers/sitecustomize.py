"""Import pyspark from its installation in Spark's Python workers.

session.py puts this folder on the path of the workers only. Spark puts a zip of pyspark first on the path. The zip
holds no compiled modules, so that each process compiles what it imports: 1.3 s of CPU instead of 0.45, in each of the
about five processes that a query starts.
"""

import sys
from importlib.machinery import PathFinder
from pathlib import Path

ZIP = "/pyspark/python/lib/pyspark.zip"
# only for an installed package: elsewhere the zip may be another version, or the only copy
last = [path for path in sys.path if path.endswith(ZIP) and Path(path[: -len(ZIP)], "pyspark/__init__.py").is_file()]
here = str(Path(__file__).parent)
sys.path[:] = [path for path in sys.path if path not in (*last, here)] + last

# run the sitecustomize that this module hides
if (_hidden := PathFinder.find_spec("sitecustomize")) is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(sys.modules[__name__])
