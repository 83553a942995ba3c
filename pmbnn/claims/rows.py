"""Every claim of a results folder as rows of one table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pmbnn.claims.facts import Facts, read_facts
from pmbnn.claims.paired import paired_rows
from pmbnn.claims.scales import scale_rows
from pmbnn.figures.combinations import Combinations, combine
from pmbnn.figures.titles import data_title
from pmbnn.storage import Results
from pmbnn.tables import Record, mean_and_error
from pmbnn.variants import Variant, families

SPARSITY = "sparsity of the last layer"
BOUNDARY = "uncertainty at the true boundary"
HYPERPRIORS = "learned scale less fixed scale"
SCALES = "scales"

CLAIMS = (SPARSITY, BOUNDARY, HYPERPRIORS, SCALES)

COLUMNS = (
    "experiment", "sweep", "data", "variant", "claim", "prior", "hyperprior", "against", "measure",
    "mean", "se", "seeds",
)  # fmt: skip
"""Of every row: ``mean`` over data seeds, its standard error ``se`` (NaN for one seed)."""

Row = dict[str, Any]


def claim_rows(experiment: str, results: Results, records: Sequence[Record]) -> list[Row]:
    """All claims that the cells of a results folder say something on; see `COLUMNS`.

    Parameters
    ----------
    experiment
        Name that the rows carry.
    results
        Where the traces are.
    records
        Cells to take; failed ones are passed over.
    """
    facts = {r["name"]: read_facts(results, r) for r in records if r["results"]}
    variants = [variant for family in families(records) for variant in family]
    return [
        {column: row.get(column, "") for column in COLUMNS} | {"experiment": experiment}
        for variant in variants
        for row in _variant_rows(variant, facts)
    ]


def _variant_rows(variant: Variant, facts: Mapping[str, Facts]) -> Iterator[Row]:
    """Rows of the cells that differ in prior, hyperprior and data seed only."""
    first = variant.records[0]
    combinations = combine(variant.records)
    head = {"sweep": first["sweep"], "data": data_title(first), "variant": "; ".join(variant.words)}
    learned = {name: found.scales for name, found in facts.items()}
    found = {
        SPARSITY: _measured(combinations, {n: f.sparsity for n, f in facts.items()}),
        BOUNDARY: _measured(combinations, {n: f.boundary for n, f in facts.items()}),
        HYPERPRIORS: paired_rows(combinations),
        SCALES: scale_rows(combinations, learned),
    }
    for claim, rows in found.items():
        for row in rows:
            yield head | {"claim": claim} | row


def _measured(
    combinations: Combinations, measures: Mapping[str, Mapping[str, float]]
) -> Iterator[Row]:
    """Means of the measures of cells over data seeds, for every combination."""
    for row, prior in enumerate(combinations.rows):
        for column, hyperprior in enumerate(combinations.columns):
            cells = [measures[r["name"]] for r in combinations.finished(row, column)]
            held = [cell for cell in cells if cell]
            for name in held[0] if held else ():
                mean, error = mean_and_error([cell[name] for cell in held])
                scale = "no scale" if row in combinations.without_scale else hyperprior
                numbers = {"mean": mean, "se": error, "seeds": len(held)}
                yield {"prior": prior, "hyperprior": scale, "measure": name} | numbers
