"""Names of stored cells and keys of random numbers stay as they are.

Both hash the text of a cell's settings. A field that is renamed keeps its first name in that text,
one that is removed its default, and a new one appears only where it differs from its default. A
change that gives other draws gives other names: MCLMC without `shares`, and with `retries` and
`largest_error`.
"""

import json
from pathlib import Path

import pytest
from local_data import write_local_data

from pmbnn.experiment.cells import Cell
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.plan import identity, settings_digest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
KEPT = json.loads(Path(__file__).with_name("identities.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module", autouse=True)
def _data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_local_data(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PMBNN_DATA", str(folder))
        yield


def digests(file: str) -> dict[str, list[str]]:
    """Identity and digest of the settings of a file's first, middle and last cell, by its place."""
    cells = load_experiment(EXPERIMENTS / f"{file}.yaml").cells
    places = sorted({0, len(cells) // 2, len(cells) - 1})
    return {str(place): _digests(cells[place]) for place in places}


def _digests(cell: Cell) -> list[str]:
    return [identity(cell, "fingerprint", {"package": "1.0"}), settings_digest(cell)]


@pytest.mark.parametrize("file", sorted(KEPT))
def test_cells_of_shipped_files_keep_their_identities(file):
    assert digests(file) == KEPT[file]
