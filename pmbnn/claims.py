"""``python -m pmbnn.claims RESULTS…``."""

from pmbnn.cli.claims import app

if __name__ == "__main__":
    app(prog_name="python -m pmbnn.claims")
