"""Images that a digit classifier has never seen: what they show and how they are laid out."""

import os

import numpy as np
import pytest
from makers import embedded_digits

from pmbnn.core.errors import ConfigError
from pmbnn.data import DataError
from pmbnn.data.arrays import Dataset, Standardisation
from pmbnn.data.digits import BOX, CENTRE, SIDE
from pmbnn.data.ood import (
    OOD,
    Digits,
    Letters,
    NormalNoise,
    OodImages,
    Rotated,
    UniformNoise,
    raw_test_digits,
)

DATA = os.environ.get("PMBNN_DATA")

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@pytest.fixture(scope="module")
def digits():
    x, y = embedded_digits()
    rows = slice(None, None, 50)
    return Digits((x[rows] / 255).astype(np.float32), tuple(str(int(label)) for label in y[rows]))


@pytest.fixture(scope="module")
def letters(digits):
    return Letters().load(digits)


def test_every_image_has_a_label():
    rule = "own must have as many labels as images \\(2\\), got 0."
    with pytest.raises(DataError, match=rule):
        OodImages("own", np.zeros((2, 784), np.float32), (), "drawn")


def test_the_registry():
    assert set(OOD) == {"normal_noise", "uniform_noise", "rotated", "letters", "fashion"}
    assert OOD["letters"] is Letters


@pytest.mark.parametrize("kind", sorted(set(OOD) - {"fashion"}))
def test_what_every_kind_gives(kind, digits):
    """Raw pixels and a label each, the same every time."""
    images, again = (OOD[kind]().load(digits) for _ in range(2))
    assert images.x.shape == (len(images), SIDE * SIDE)
    assert images.x.dtype == np.float32
    assert len(images.labels) == len(images)
    assert images.name.startswith(kind)
    assert images.source
    np.testing.assert_array_equal(images.x, again.x)
    if kind != "normal_noise":
        assert images.x.min() >= 0
        assert images.x.max() <= 1


def test_a_setting_out_of_range():
    for wrong in ({"angle": 400}, {"size": 0}, {"seed": 1}):
        with pytest.raises(ConfigError):
            Rotated(**wrong)
    for wrong in ("", "ab", "Ä", "A1"):
        with pytest.raises(ConfigError):
            Letters(letters=wrong)


# Digits of a data set


def test_standardisation_is_undone():
    raw = np.linspace(0, 1, 4 * 784).reshape(4, 784)
    standardisation = Standardisation(np.full(784, 0.13), np.full(784, 0.31))
    x = standardisation(raw).astype(np.float32)
    dataset = Dataset(
        x, np.arange(4), x, np.array([3, 1, 0, 2]), tuple(map(str, range(784))), tuple("abcd"),
        standardisation, "made",
    )  # fmt: skip
    found = raw_test_digits(dataset)
    np.testing.assert_allclose(found.x, raw, atol=1e-6)
    assert found.x.dtype == np.float32
    assert found.x.min() >= 0
    assert found.x.max() <= 1
    assert found.labels == ("d", "b", "a", "c")


# Noise


@pytest.mark.parametrize(
    ("kind", "mean", "sd"), [(NormalNoise, 0, 1), (UniformNoise, 0.5, 12**-0.5)]
)
def test_noise(kind, mean, sd, digits):
    x = kind(seed=3).load(digits).x
    assert x.shape == (1000, 784)
    # Monte-Carlo errors of 784,000 pixels; the variance's is at most sqrt(2/n) of it.
    assert x.mean() == pytest.approx(mean, abs=4 * sd / 784_000**0.5)
    assert x.var() == pytest.approx(sd**2, rel=4 * (2 / 784_000) ** 0.5)
    neighbours = np.corrcoef(x[:, :-1].ravel(), x[:, 1:].ravel())[0, 1]
    assert abs(neighbours) < 4 / 784_000**0.5
    other = kind(seed=4, size=5).load(digits)
    assert other.x.shape == (5, 784)
    assert not np.array_equal(other.x, x[:5])
    assert set(other.labels) == {""}


# Rotated digits


def test_a_quarter_turn_is_exact(digits):
    found = Rotated().load(digits)
    upright = digits.x.reshape(-1, SIDE, SIDE)
    expected = np.rot90(upright, axes=(1, 2))
    np.testing.assert_allclose(found.x.reshape(-1, SIDE, SIDE), expected, atol=1e-6)
    assert found.labels == digits.labels
    assert found.name == "rotated_90"


def test_other_angles(digits):
    """There and back again is nearly where it began; the centre stays where it is."""
    there = Rotated(angle=30, size=7).load(digits)
    assert there.name == "rotated_30"
    assert len(there) == len(there.labels) == 7
    back = Rotated(angle=-30).load(Digits(there.x, there.labels))
    assert back.name == "rotated_-30"
    for before, after in zip(digits.x, back.x, strict=False):
        assert np.corrcoef(before, after)[0, 1] > 0.9
    np.testing.assert_allclose(Rotated(angle=0).load(digits).x, digits.x, atol=1e-6)


def test_more_digits_than_there_are(digits):
    with pytest.raises(ValueError, match="`size` must be at most 100 for rotated, got 101"):
        Rotated(size=101).load(digits)


# Letters


def layout(x):
    """Longer side of the foreground, centre of mass, share of white, of each image."""
    images = x.reshape(-1, SIDE, SIDE)
    rows, columns = (images.any(axis=axis) for axis in (2, 1))
    sides = [
        np.array([np.ptp(np.flatnonzero(foreground)) + 1 for foreground in lines])
        for lines in (rows, columns)
    ]
    mass = images.sum(axis=(1, 2))
    pixels = np.arange(SIDE)
    down, across = images.sum(axis=2) @ pixels / mass, images.sum(axis=1) @ pixels / mass
    return np.maximum(*sides), np.stack([down, across]), mass / images[0].size


def test_every_letter_in_every_face(letters):
    assert letters.labels == tuple(ALPHABET) * 23
    assert letters.name == "letters"
    images = letters.x.reshape(23, 26, -1)
    for of_one in (*images, *images.transpose(1, 0, 2)):
        assert len(np.unique(of_one, axis=0)) == len(of_one)


def test_letters_are_laid_out_as_digits_are(letters, digits):
    sides, centre, white = layout(letters.x)
    of_digits = layout(digits.x)
    assert set(sides) == set(of_digits[0]) == {BOX}
    # Both were moved by whole pixels.
    assert np.abs(centre - CENTRE).max() <= 0.5 + 1e-6
    assert np.abs(of_digits[1] - CENTRE).max() <= 0.5 + 1e-6
    assert white.mean() == pytest.approx(of_digits[2].mean(), rel=0.3)
    assert (letters.x.max(axis=1) > 0.95).all()


def test_edges_are_smooth(letters, digits):
    def grey(x):
        return ((x > 0.05) & (x < 0.95)).sum() / (x > 0.05).sum()

    assert grey(letters.x) == pytest.approx(grey(digits.x), abs=0.2)


def test_letters_stand_upright(letters):
    """An L is heavier below and to the left, a P above, whatever the face."""
    images = letters.x.reshape(23, 26, SIDE, SIDE)
    for image in images[:, ALPHABET.index("L")]:
        rows, columns = (np.flatnonzero(image.any(axis=axis)) for axis in (1, 0))
        cut = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        assert cut[-5:].sum() > cut[:5].sum()
    for image in images[:, ALPHABET.index("P")]:
        rows = np.flatnonzero(image.any(axis=1))
        middle = rows.mean()
        assert image[: int(middle)].sum() > image[int(middle) + 1 :].sum()


def test_some_letters(digits, letters):
    found = Letters(letters="BX").load(digits)
    assert found.labels == tuple("BX") * 23
    np.testing.assert_array_equal(found.x[0], letters.x[ALPHABET.index("B")])


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="PMBNN_DATA names no folder with the full Fashion-MNIST")
def test_the_original_clothes(digits):
    from pmbnn.data.ood import CLOTHES

    found = OOD["fashion"]().load(digits)
    assert found.source == "local"
    assert found.x.shape == (10_000, 784)
    assert [found.labels.count(name) for name in CLOTHES] == [1000] * 10
    assert found.labels[:5] == ("ankle boot", "pullover", "trouser", "trouser", "shirt")
