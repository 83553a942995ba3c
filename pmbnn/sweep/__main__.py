"""``python -m pmbnn.sweep FILE``, which is ``pmbnn sweep FILE``."""

import sys

from pmbnn.cli import app

app(["sweep", *sys.argv[1:]], prog_name="pmbnn")
