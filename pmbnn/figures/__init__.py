"""Figures of stored results: one file per kind, each drawn from traces and records alone.

Nothing here knows how a cell was fitted. `FIGURES` says which figures there are of what a cell
predicts; `CellDrawer`, `draw_cells` and `draw_files` draw what a results folder lacks.
Figures are made through matplotlib's object interface, so that they can be drawn in any process
and leave no global state behind.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "overviews": ["FIGURES", "FigureKinds", "Sheet", "sheet_of", "sheets"],
        "stage": [
            "CellDrawer",
            "Drawing",
            "draw_cells",
            "draw_files",
            "missing_cell_figures",
            "outdated_overviews",
            "overviews_of",
        ],
    },
)
