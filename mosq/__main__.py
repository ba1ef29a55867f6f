"""`python -m mosq` is the command `mosq`."""

import sys

from mosq.cli import main

sys.exit(main())
