#!/usr/bin/python3 -sP
"""The command `mosq` of the Debian package. mosq and the packages that it needs are in a folder of their own, so that
neither Debian's packages of Python nor those of users change the broker."""

import os
import sys

FOLDER = "/usr/lib/mosq"
# optional packages, which root installs with the command that mosq shows where one is missing (mosq/tools/extras.py)
EXTRAS = f"/usr/local/lib/mosq/python{sys.version_info[0]}.{sys.version_info[1]}"
sys.path.insert(0, FOLDER)
sys.path.append(EXTRAS)
# programs that mosq starts, such as the broker of `mosq bench`
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (FOLDER, os.environ.get("PYTHONPATH"), EXTRAS)))

from mosq.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
