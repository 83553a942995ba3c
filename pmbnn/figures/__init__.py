"""Figures of stored results: one file per kind, each drawn from traces and records alone.

Nothing here knows how a cell was fitted. Figures are made through matplotlib's object
interface, so that they can be drawn in any process and leave no global state behind.
"""

from pmbnn.figures.write import write_figures

__all__ = ["write_figures"]
