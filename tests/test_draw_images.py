"""The drawn images of the out-of-domain figure: digits are digits, the others are none."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from makers import embedded_digits
from PIL import Image
from sklearn.neighbors import KNeighborsClassifier

from pmbnn.data.digits import read_image

SCRIPT = Path(__file__).parents[1] / "experiments" / "draw_images.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("draw_images", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def files(script, tmp_path_factory):
    return script.draw_images(tmp_path_factory.mktemp("drawn") / "images")


@pytest.mark.slow
def test_the_command_names_what_it_writes(files, tmp_path):
    command = [sys.executable, SCRIPT, tmp_path / "images"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    written = [Path(line) for line in done.stdout.splitlines()]
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in files]


def test_names(files):
    assert [path.stem for path in files] == [
        "1_digit_2",
        "2_digit_3",
        "3_digit_7",
        "4_digit_9",
        "5_house",
        "6_face",
        "7_scribble",
    ]


@pytest.mark.slow
def test_equal_seeds_give_equal_images(files, script, tmp_path):
    again = script.draw_images(tmp_path / "again")
    other = script.draw_images(tmp_path / "other", random_seed=1)
    for path, same, different in zip(files, again, other, strict=True):
        assert path.read_bytes() == same.read_bytes()
        assert path.read_bytes() != different.read_bytes()


def test_ink_of_several_colours_on_light_paper(files):
    darkest = []
    for path in files:
        with Image.open(path) as image:
            assert image.mode == "RGB"
            pixels = np.asarray(image, float).reshape(-1, 3)
        assert np.median(pixels.mean(axis=1)) > 170
        darkest.append(tuple(pixels[pixels.mean(axis=1).argsort()[:500]].mean(axis=0).argsort()))
    assert len(set(darkest)) > 2


def test_digits_look_like_digits_and_the_rest_does_not(files):
    """To a classifier by nearest neighbours, from the image as a network would get it."""
    x, y = embedded_digits()
    neighbours = KNeighborsClassifier(5).fit(x / 255, y)
    seen = np.stack([read_image(path).digit.ravel() for path in files])
    assert neighbours.predict(seen[:4]).tolist() == [2, 3, 7, 9]
    distance = neighbours.kneighbors(seen)[0].mean(axis=1)
    assert distance[:4].max() < distance[4:].min()
    assert all(read_image(path).inverted for path in files)
