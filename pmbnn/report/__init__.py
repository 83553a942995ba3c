"""One self-contained page of everything that results folders hold: `python -m pmbnn.report`."""
