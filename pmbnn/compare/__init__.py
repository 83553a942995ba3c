"""Comparisons of priors and hyperpriors on stored results: arrays and records in, tables out.

- `intervals`: paired differences of two methods, their intervals, and the names of verdicts;
- `diff`: two results folders, settings that differ and metrics paired by data seed;
- `contrasts`: whether a prior matters and whether ADVI says so too, ``compare.csv``;
- `over_data`: the same contrasts over all data sets at once, ``compare_over_data.csv``;
- `rows`: the same contrasts with errors by test row, ``compare_rows.csv``;
- `baselines`: networks beside baseline models and published results, ``baselines.csv``;
- `baseline_models`: the models of scikit-learn that are fitted beside networks;
- `evidence`: what a prior can be chosen by, and what each choice costs, ``evidence.csv`` and
  ``regret.csv``;
- `agreement`: how far fits are from the posterior, ``agreement.csv``, and at what cost,
  ``ladder.csv``;
- `sensitivity`: power-scaling sensitivity of sampled posteriors, ``sensitivity.csv``;
- `claims`: learned scales less fixed ones, scales, and sparsity and uncertainty at the true
  boundary of each cell, ``claims.csv``;
- `published_splits`: published results split by split, which baselines are compared with;
- `scores`: what a cell is judged by, by the type of its predictions, and the ranking of
  combinations.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "agreement": ["agreement_table", "write_agreement"],
        "claims": ["claims_table", "paired_rows", "read_claims", "write_claims"],
        "contrasts": ["delta_table", "verdict_table"],
        "intervals": ["joint_intervals", "paired_differences", "t_interval"],
        "scores": ["SCORES", "Scores", "rank_combinations"],
    },
)
