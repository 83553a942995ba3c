"""``python -m pmbnn.report RESULTS…``."""

from pmbnn.report.command import app

if __name__ == "__main__":
    app()
