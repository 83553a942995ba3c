"""Files and colours."""

import signal

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.artist import Artist

from pmbnn.figures import style


def test_equal_figures_give_equal_bytes(tmp_path):
    for name in ("a.png", "b.png"):
        figure = style.new_figure(2, 2)
        figure.subplots().plot([0, 1], [1, 0])
        style.set_title(figure, "a line")
        style.save_figure(figure, tmp_path / name)
    written = (tmp_path / "a.png").read_bytes()
    assert written == (tmp_path / "b.png").read_bytes()
    assert b"matplotlib" not in written.lower()


def test_a_file_without_the_ending_png_is_a_png_too(tmp_path):
    style.save_figure(style.new_figure(1, 1), tmp_path / "figure.part")
    assert (tmp_path / "figure.part").read_bytes().startswith(b"\x89PNG")


def test_few_colours_are_kept_and_many_stay_close():
    pixels = np.random.default_rng(0).integers(0, 4, (30, 20, 3)).astype(np.uint8) * 85
    np.testing.assert_array_equal(style.reduce_colours(pixels).convert("RGB"), pixels)
    # More colours than a file has, of every pixel with the one above it.
    shades = np.repeat(
        style.UNCERTAINTY(np.linspace(0, 1, 400), bytes=True)[:, None, :3], 9, axis=1
    )
    shades[200:, :, 0] = 255
    found = style.reduce_colours(shades)
    assert found.mode == "P"
    apart = np.asarray(found.convert("RGB")).astype(int) - shades
    assert np.abs(apart).max() <= 4


def test_titles_are_broken_to_the_width(words):
    figure = style.new_figure(3, 2)
    style.set_title(figure, "some words " * 10 + "\nand a second line with 5 $ and 6 $")
    lines = figure.get_suptitle().splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) < 45
    assert "and a second line" in lines[-2] + lines[-1]


@pytest.mark.parametrize(
    ("largest", "limit"),
    [
        (0.123, 0.15),
        (0.15, 0.15),
        (0.31, 0.35),
        (0.0042, 0.0045),
        (0.49, 0.5),
        (0.9, 0.5),
        (0, 0.5),
    ],
)
def test_upper_limit_is_a_round_number_above(largest, limit):
    assert style.upper_limit([np.array([0.0, largest, np.nan])], 0.5) == pytest.approx(limit)


def test_upper_limit_in_any_unit():
    """As of the variance of a target in micrometres, written in metres."""
    assert style.upper_limit([np.array([1.23e-13])], np.inf) == pytest.approx(1.5e-13)


def test_upper_limit_of_nothing():
    assert style.upper_limit([], 0.5) == 0.5


def test_the_probability_map_is_lightest_at_one_half_and_falls_to_both_sides():
    red, green, blue, _ = style.PROBABILITY(np.linspace(0, 1, 101)).T
    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    assert light.argmax() in (49, 50, 51)
    assert (np.diff(light[:50]) > 0).all()
    assert (np.diff(light[51:]) < 0).all()


def test_words_read_on_dark_and_on_light():
    assert style.readable_on((0, 0, 0.3, 1)) == "white"
    assert style.readable_on(colormaps["cividis"](1.0)) == "black"
    assert style.readable_on((0, 0, 0, 0)) == "black"


def test_ctrl_c_waits_for_a_figure(tmp_path):
    """Within matplotlib's C++ code it became a ValueError, a traceback or a part left out."""

    class Interrupted(Artist):
        drawn = False

        def draw(self, renderer):
            signal.raise_signal(signal.SIGINT)
            self.drawn = True

    figure, artist = style.new_figure(1, 1), Interrupted()
    figure.add_artist(artist)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            style.save_figure(figure, tmp_path / "figure.png")
    finally:
        signal.signal(signal.SIGINT, before)
    assert artist.drawn
