"""Files that appear whole or not at all."""

import pytest

from pmbnn.core.files import whole_file


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_after_the_block(tmp_path):
    path = tmp_path / "a.txt"
    with whole_file(path) as part:
        part.write_text("new")
        assert not path.exists() and part.parent == tmp_path and part.suffix == ".txt"
    assert path.read_text() == "new" and names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [OSError, ValueError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error), whole_file(path) as part:
        part.write_text("half")
        raise error
    assert path.read_text() == "old" and names(tmp_path) == ["a.txt"]


def test_a_file_keeps_its_mode(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(0o600)
    with whole_file(path) as part:
        part.write_text("new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)


def test_the_part_may_lie_elsewhere(tmp_path):
    (tmp_path / "figures").mkdir()
    path = tmp_path / "figures" / "a.png"
    with whole_file(path, tmp_path) as part:
        part.write_text("new")
        assert part.parent == tmp_path
    assert names(tmp_path) == ["figures"] and names(path.parent) == ["a.png"]
