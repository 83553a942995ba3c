"""``python -m pmbnn.claims``."""

from pmbnn.claims.command import app

app()
