"""Comparisons of priors and hyperpriors on stored results: arrays and records in, tables out.

- `ranking`: which combination is best on a data set, by how much, and how certain that is;
- `paired`: learned scales less fixed ones on the same data;
- `scales`: the best fixed scale, and where learned ones go;
- `boundary`: whether uncertainty is highest where the classes truly meet;
- `measures`: that of one cell, and how few weights of its last layer are away from zero;
- `agreement`: how far fits are from the posterior itself, ``agreement.csv``;
- `in_between`: how uncertain each method is in a gap between rows, ``in_between.csv``;
- `claims`: all but the first as one table, ``claims.csv``, which ``pmbnn claims`` prints;
- `contrasts`: whether a prior matters and whether ADVI says so too, ``compare.csv``, which
  ``pmbnn compare`` prints;
- `hierarchical`: means of such differences, with intervals that hold all at once.

`scores` says what a cell is judged by, and what is shown of it, by the type of its predictions.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "agreement": ["agreement_table", "write_agreement"],
        "claims": ["claims_table", "read_claims", "write_claims"],
        "contrasts": ["delta_table", "verdict_table"],
        "hierarchical": ["joint_intervals", "mean_draws", "simultaneous_intervals"],
        "in_between": ["in_between_table", "write_in_between"],
        "paired": ["paired_rows"],
        "ranking": ["rank_combinations"],
        "scores": ["SCORES", "Scores"],
    },
)
