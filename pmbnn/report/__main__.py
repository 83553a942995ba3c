"""``python -m pmbnn.report RESULTS…``."""

from pmbnn.cli.report import app

app(prog_name="python -m pmbnn.report")
