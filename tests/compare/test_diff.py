"""What sets two results folders apart."""

import numpy as np
import pytest

from pmbnn.compare.diff import diff
from pmbnn.compare.intervals import t_interval
from pmbnn.results.loading import load_results
from pmbnn.results.record import StoredPlugin

NLL = (0.30, 0.34, 0.41)


def folder(made, path, shift=0.0, dataset=None, **changes):
    """Results of one combination on three data seeds."""
    dataset = dataset or made.MOONS
    cells = [
        made.record(dataset=dataset | {"seed": seed}, nll=nll + shift * nll)
        for seed, nll in enumerate(NLL)
    ]
    cells = [(made.changed(cell, **changes), None) for cell in cells]
    return load_results(made.store(path, cells).folder)


def test_data_and_plugins_that_changed_are_named(made, tmp_path):
    """Under the same settings: no metric tells that the rows are others."""
    plugin = StoredPlugin(name="own.py", sha256="1" * 64, sections=("prior",))
    a = folder(made, tmp_path / "a", fingerprint="a" * 64, plugins=(plugin,))
    other = plugin.model_copy(update={"sha256": "2" * 64})
    b = folder(made, tmp_path / "b", fingerprint="b" * 64, plugins=(other,))
    assert diff(a, b).settings.to_numpy().tolist() == [
        ["rows of moons, noise 0.4", "aaaaaaaa", "bbbbbbbb"],
        ["source of own.py", "11111111", "22222222"],
    ]
    assert diff(a, a).settings.empty


def test_metrics_of_two_data_sets_are_called_so(made, tmp_path):
    noisy = folder(made, tmp_path / "b", dataset=made.MOONS | {"noise": 0.5})
    (row,) = diff(folder(made, tmp_path / "a"), noisy, ["nll"]).metrics.to_dict("records")
    assert row["data"] == "moons, noise 0.4 to moons, noise 0.5"


def test_combinations_of_two_networks_and_files_have_names_of_their_own(made, tmp_path):
    """Four rows of one name had differences of their own."""

    def results(path, shift):
        cells = [
            made.record(
                hyperprior=made.FIXED,
                dataset={"kind": "table", "file": file, "target": "y", "seed": seed},
                network={"kind": "dense", "hidden": [width]},
                nll=nll + shift * width,
            )
            for file in ("a/x.csv", "b/x.csv")
            for width in (5, 10)
            for seed, nll in enumerate(NLL)
        ]
        return load_results(made.store(path, [(cell, None) for cell in cells]).folder)

    rows = diff(results(tmp_path / "a", 0.0), results(tmp_path / "b", 0.1), ["nll"]).metrics
    assert rows[["data", "combination"]].to_numpy().tolist() == [
        [f"table x, file {file}", f"normal × fixed 1, network.hidden {width}"]
        for file in ("a/x.csv", "b/x.csv")
        for width in (5, 10)
    ]
    assert rows["difference"].tolist() == pytest.approx([0.5, 1.0, 0.5, 1.0])


@pytest.mark.parametrize("overlaps", [(0.25, 0.0), (0.0, 0.25)])
def test_intervals_allow_for_the_overlap_of_either_folder(made, tmp_path, overlaps):
    """Cells that were stored before splits were recorded have none."""
    a, b = (
        folder(made, tmp_path / name, shift, overlap=overlap)
        for name, shift, overlap in zip("ab", (0.0, 0.1), overlaps, strict=True)
    )
    (row,) = diff(a, b, ["nll"]).metrics.to_dict("records")
    expected = t_interval(0.1 * np.array(NLL), 0.25)
    assert (row["low"], row["high"]) == pytest.approx((expected["low"], expected["high"]))
