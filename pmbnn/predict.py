"""``python -m pmbnn.predict CELL IMAGE…``."""

from pmbnn.cli.predict import app

if __name__ == "__main__":
    app(prog_name="python -m pmbnn.predict")
