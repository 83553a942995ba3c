"""``python -m pmbnn COMMAND``, which is ``pmbnn COMMAND``."""

from pmbnn.cli import app

app(prog_name="pmbnn")
