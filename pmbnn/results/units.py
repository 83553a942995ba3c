"""Units of results, for headings.

What speaks of targets is in the units that they have in the data, but for sums over all training
rows that belong to the model: `STANDARDISED`.
"""

from pmbnn.results.tables import IN_UNITS

NATS = "nats"

OF_TARGET = "target's units"

STANDARDISED = ("elbo", "log_likelihood", "log_evidence")
"""Sums over all training rows, nats: of standardised targets where a data set standardises them."""

PREFIXES = ("pooled_", "train_")

SUFFIXES = ("_mcse", "_se", "_difference")

UNITS = {
    **dict.fromkeys(
        ("nll", "excess_nll", "lowest_nll", "validation_nll", "held_out.nll", "elpd_loo"), NATS
    ),
    **dict.fromkeys(("mean_entropy", "mean_mutual_information", "kl", *STANDARDISED), NATS),
    **dict.fromkeys(("expected_entropy", "entropy"), NATS),
    **dict.fromkeys(("rmse", "crps", "mean_total_sd", "mean_epistemic_sd"), OF_TARGET),
    **dict.fromkeys(("output_range", "output_sd", "noise", "target_range"), OF_TARGET),
    **dict.fromkeys(("band_inside", "smallest_sd"), OF_TARGET),
    "seconds": "seconds",
}
"""By the name of a result; what is missing is a share, a ratio or a count."""

OF_TARGETS = ("mean_at_", "band_at_", "sd_at_", *(f"{n}_" for n in IN_UNITS if n in UNITS))
"""Starts of names whose numbers are in the target's units."""


def unit_of(name: str) -> str:
    """Unit of a result; empty where it has none."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return UNITS.get(name, OF_TARGET if name.startswith(OF_TARGETS) else "")


def with_unit(words: str, name: str, standardised: bool = False) -> str:
    """A heading with the unit of a result: ``NLL (nats)``.

    Parameters
    ----------
    standardised
        Whether the rows are of numbers, whose targets a data set may standardise.
    """
    unit = unit_of(name)
    if standardised and name in STANDARDISED:
        unit = f"{unit}, standardised targets"
    return f"{words} ({unit})" if unit else words
