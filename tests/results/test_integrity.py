"""Damage to stored cells is found, named and set aside, whichever file it is in."""

import numpy as np
import pytest
from makers import plane_trace, record, store
from PIL import Image

from pmbnn.results.integrity import broken_cells, set_aside_broken, verify
from pmbnn.results.store import Results, ResultsError

FILES = ("metrics.json", "trace.nc")


def truncate(path):
    path.write_bytes(path.read_bytes()[:-20])


def zero(path):
    path.write_bytes(bytes(path.stat().st_size))


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def remove(path):
    path.unlink()


@pytest.fixture
def folder(tmp_path):
    """Two finished cells with a figure each."""
    trace = plane_trace(resolution=(5, 4), points=10)
    pixels = np.random.default_rng(0).integers(0, 255, (28, 28), dtype=np.uint8)
    cells = [(record("normal"), trace), (record("laplace"), trace)]
    results = store(tmp_path, cells)
    for made, _ in cells:
        Image.fromarray(pixels).save(results.cells / made.name / "map.png")
    return results


@pytest.mark.parametrize("damage", [truncate, zero, flip, remove])
@pytest.mark.parametrize("file", FILES)
def test_damage_to_a_data_file_is_named_and_set_aside(folder, file, damage):
    first, second = folder.cell_names()
    assert verify(folder.folder) == []
    damage(folder.cells / first / file)
    (found,) = verify(folder.folder, repair=True)
    assert found.cell == first
    assert first in str(found)
    assert "\n" not in str(found)
    assert folder.cell_names() == [second]
    assert (folder.cells / f".broken-{first}").is_dir()
    assert verify(folder.folder) == []


@pytest.mark.parametrize(
    ("file", "damage"),
    [("metrics.json", d) for d in (truncate, zero, flip, remove)]
    + [("trace.nc", d) for d in (truncate, remove)],
)
def test_every_start_finds_what_sizes_and_records_tell(folder, file, damage):
    first, second = folder.cell_names()
    damage(folder.cells / second / file)
    (found,) = set_aside_broken(folder)
    assert found.cell == second
    assert folder.cell_names() == [first]
    assert set_aside_broken(folder) == []


@pytest.mark.parametrize("damage", [zero, flip])
def test_damage_within_a_trace_takes_its_digest(folder, damage):
    first, _ = folder.cell_names()
    damage(folder.cells / first / "trace.nc")
    assert list(broken_cells(folder)) == []
    assert [problem.cell for problem in broken_cells(folder, digests=True)] == [first]


def test_a_second_broken_cell_takes_the_place_of_the_first(folder):
    first, _ = folder.cell_names()
    for content in ("old", "new"):
        (folder.cells / first).mkdir(exist_ok=True)
        (folder.cells / first / "metrics.json").write_text(content)
        set_aside_broken(folder)
    assert (folder.cells / f".broken-{first}" / "metrics.json").read_text() == "new"


@pytest.mark.parametrize("damage", [truncate, zero, flip])
def test_broken_figures_are_removed_and_cells_stay(folder, damage):
    first, _ = folder.cell_names()
    figure = folder.cells / first / "map.png"
    damage(figure)
    assert set_aside_broken(folder) == []
    (found,) = verify(folder.folder, repair=True)
    assert found.path == figure
    assert not figure.exists()
    assert len(folder.cell_names()) == 2


@pytest.mark.parametrize("name", ["prior/one.nc", "calibration/one.nc"])
def test_broken_priors_and_ranks_are_named_and_removed(folder, name):
    path = folder.folder / name
    path.parent.mkdir()
    path.write_bytes(b"no netCDF")
    (found,) = verify(folder.folder, repair=True)
    assert found.path == path
    assert not path.exists()


def test_cells_of_another_format_are_no_broken_ones(folder):
    first, _ = folder.cell_names()
    (folder.cells / first / "metrics.json").write_text('{"sweep": "toy"}')
    message = r"was written by a version before.*--out.* run the experiment again"
    with pytest.raises(ResultsError, match=message):
        set_aside_broken(folder)
    assert len(folder.cell_names()) == 2


def test_only_a_results_folder_can_be_verified(tmp_path):
    with pytest.raises(ResultsError, match="no folder `cells`"):
        verify(tmp_path)


def test_what_is_being_written_is_no_cell(folder):
    (folder.cells / ".part-x").mkdir()
    assert len(Results(folder.folder).cell_names()) == 2
    assert verify(folder.folder) == []
