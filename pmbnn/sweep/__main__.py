"""``python -m pmbnn.sweep FILE``."""

from pmbnn.cli.sweep import app

app(prog_name="python -m pmbnn.sweep")
