"""A user's image files: drawn here, read, and laid out as digits."""

import numpy as np
import pytest
from makers import embedded_digits
from PIL import Image, ImageDraw

from pmbnn.data.digits import (
    BOX,
    CENTRE,
    DISPLAY_SIDE,
    EDGE,
    SIDE,
    ImageError,
    UserImage,
    as_digit,
    read_image,
)

DIGITS = embedded_digits()[0].reshape(-1, SIDE, SIDE)[::250].astype(np.uint8)


def seven(side=200, foreground=30, paper=230, width=18, at=(50, 40)):
    """A seven in the left upper part, in grey; its middle is not half way between pixels."""
    image = Image.new("L", (side, side), paper)
    x, y = at
    stroke = [(x, y), (x + 70, y), (x + 25, y + 116)]
    ImageDraw.Draw(image).line(stroke, fill=foreground, width=width, joint="curve")
    return image


def saved(folder, image, name="image.png", **settings):
    path = folder / name
    image.save(path, **settings)
    return path


def box(digit, above=0.1):
    rows, columns = np.nonzero(digit > above)
    return int(np.ptp(rows)) + 1, int(np.ptp(columns)) + 1


def centre_of_mass(digit):
    return np.array([np.average(np.indices(digit.shape)[axis], weights=digit) for axis in (0, 1)])


def correlation(a, b):
    return np.corrcoef(a.ravel(), b.ravel())[0, 1]


# Layout


def test_digits_are_laid_out_as_they_are():
    """MNIST's own layout is a fixed point."""
    for digit in DIGITS:
        np.testing.assert_allclose(as_digit(digit / 255), digit / 255, atol=1e-6)


@pytest.mark.parametrize("shape", [(200, 40), (40, 200), (7, 5), (20, 20), (300, 299)])
def test_a_block_fills_the_box_at_the_middle(shape):
    foreground = np.zeros((400, 400))
    foreground[10 : 10 + shape[0], 30 : 30 + shape[1]] = 1
    digit = as_digit(foreground)
    assert digit.shape == (SIDE, SIDE)
    assert digit.dtype == np.float32
    assert max(box(digit, 0)) == BOX
    expected = [max(1, round(BOX * length / max(shape))) for length in shape]
    assert list(box(digit, 0)) == expected
    assert (np.abs(centre_of_mass(digit) - CENTRE) <= 0.5).all()
    assert digit.max() == 1


def test_foreground_is_never_moved_over_the_edge():
    """A drawing whose mass lies at one end touches the image's edge and stays whole."""
    foreground = np.zeros((100, 100))
    foreground[:, 48:52] = 0.01
    foreground[:3, 30:70] = 1
    digit = as_digit(foreground)
    assert box(digit, 0)[0] == BOX
    assert digit[-1].any()


def test_no_foreground_has_no_layout():
    with pytest.raises(ValueError, match="no foreground"):
        as_digit(np.zeros((5, 5)))


# Reading


def test_what_comes_back(tmp_path):
    path = saved(tmp_path, seven())
    image = read_image(str(path))
    assert isinstance(image, UserImage)
    assert image.path == path
    np.testing.assert_array_equal(image.original, np.asarray(seven()))
    assert image.grey.shape == (200, 200)
    assert (image.grey.min(), image.grey.max()) == (0, 1)
    assert image.grey[60, 190] == 1  # paper stays light there
    assert image.inverted
    assert image.digit.shape == (SIDE, SIDE)
    assert image.digit.dtype == image.grey.dtype == np.float32
    assert (image.digit.min(), image.digit.max()) == (0, 1)
    assert image.digit[:, 0].max() == 0
    assert max(box(image.digit)) == BOX
    assert (np.abs(centre_of_mass(image.digit) - CENTRE) <= 0.5).all()


def test_a_digit_of_mnist_comes_back_as_it_is(tmp_path):
    for digit in DIGITS:
        path = saved(tmp_path, Image.fromarray(digit))
        for image in (read_image(path), read_image(path, whole=True)):
            assert not image.inverted
            np.testing.assert_allclose(image.digit, digit / 255, atol=EDGE)


def test_dark_on_light_is_light_on_dark(tmp_path):
    light = read_image(saved(tmp_path, seven(foreground=230, paper=30)))
    dark = read_image(saved(tmp_path, seven()))
    assert not light.inverted
    assert dark.inverted
    np.testing.assert_allclose(light.digit, dark.digit, atol=1e-5)


@pytest.mark.parametrize(("foreground", "paper"), [(60, 110), (150, 200), (0, 255), (20, 60)])
def test_dim_and_bright_photographs(tmp_path, foreground, paper):
    """It is the paper's own brightness that foreground is darker than."""
    expected = read_image(saved(tmp_path, seven()))
    found = read_image(saved(tmp_path, seven(foreground=foreground, paper=paper)))
    assert found.inverted
    np.testing.assert_allclose(found.digit, expected.digit, atol=1e-4)


def test_uneven_light_noise_and_dust(tmp_path):
    rng = np.random.default_rng(0)
    row, column = np.indices((200, 200)) / 200
    clean = np.asarray(seven(), float)
    photo = clean * (0.6 + 0.2 * row + 0.2 * column) + rng.normal(scale=4, size=clean.shape)
    photo[180:183, 180:183] = 20
    path = saved(tmp_path, Image.fromarray(photo.clip(0, 255).astype(np.uint8)))
    expected = read_image(saved(tmp_path, seven(), "clean.png"))
    found = read_image(path)
    assert found.inverted
    assert correlation(found.digit, expected.digit) > 0.98
    assert found.digit[:, :3].max() == 0


def test_dots_and_stains(tmp_path):
    """No spot is a large part of all foreground; and the largest may be the palest."""
    dots = np.full((200, 200), 230, np.uint8)
    for row in range(20, 180, 8):
        for column in range(20, 180, 8):
            dots[row : row + 3, column : column + 3] = 20
    digit = read_image(saved(tmp_path, Image.fromarray(dots))).digit
    assert box(digit) == (BOX, BOX)
    stain = np.full((200, 200), 230, np.uint8)
    stain[40:160, 60:120] = 160
    stain[100:104, 150:154] = 0
    digit = read_image(saved(tmp_path, Image.fromarray(stain))).digit
    assert box(digit) == (BOX, 10)


def test_inversion_can_be_said(tmp_path):
    path = saved(tmp_path, seven())
    assert read_image(path, invert=True).inverted
    with pytest.raises(ImageError, match="shows no foreground"):
        read_image(path, invert=False)


def test_the_whole_image_keeps_its_place(tmp_path):
    image = read_image(saved(tmp_path, seven(at=(10, 10))), whole=True)
    assert image.digit.shape == (SIDE, SIDE)
    assert centre_of_mass(image.digit)[0] < 11
    assert box(image.digit)[0] < BOX


@pytest.mark.parametrize("width", [2, 4, 8])
def test_thin_strokes_become_as_wide_as_those_of_mnist(tmp_path, width):
    """A ball pen's lines would otherwise be pale and thinner than any the network has seen."""
    image = read_image(saved(tmp_path, seven(width=width)))
    middle = image.digit[10:18].sum(axis=1)
    assert 1.7 < np.median(middle) < 3
    assert max(box(image.digit)) == BOX


# Formats


def opaque(image, foreground, paper):
    """Drawing in RGBA: colours of the foreground and of the paper, transparent or not."""
    mask = np.asarray(image)[..., None] < 128
    return Image.fromarray(np.where(mask, foreground, paper).astype(np.uint8), "RGBA")


def in_16_bits():
    return Image.fromarray(np.asarray(seven()).astype(np.uint16) * 257)


def in_floats():
    return Image.fromarray(np.asarray(seven(), np.float32) / 255)


def coloured():
    return seven().convert("RGB")


FORMATS = {
    "grey.png": seven,
    "colour.png": coloured,
    "colour.jpg": coloured,
    "colour.bmp": coloured,
    "colour.webp": coloured,
    "grey.tiff": seven,
    "16_bits.png": in_16_bits,
    "16_bits.tiff": in_16_bits,
    "floats.tiff": in_floats,
    "one_bit.png": lambda: seven().convert("1", dither=Image.Dither.NONE),
    "palette.png": lambda: coloured().quantize(8),
    "palette.gif": lambda: coloured().quantize(8),
    "grey_alpha.png": lambda: seven().convert("LA"),
    "cmyk.jpg": lambda: coloured().convert("CMYK"),
    "opaque.png": lambda: opaque(seven(), (0, 0, 0, 255), (255, 255, 255, 255)),
    "transparent_paper.png": lambda: opaque(seven(), (0, 0, 0, 255), (0, 0, 0, 0)),
    "white_on_nothing.png": lambda: opaque(seven(), (255, 255, 255, 255), (255, 255, 255, 0)),
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats(tmp_path, name):
    expected = read_image(saved(tmp_path, seven()))
    found = read_image(saved(tmp_path, FORMATS[name](), name))
    assert correlation(found.digit, expected.digit) > 0.98
    assert found.original.dtype == np.uint8
    assert found.original.shape in ((200, 200), (200, 200, 3))
    assert found.inverted == (name != "white_on_nothing.png")


def test_the_way_a_camera_was_held(tmp_path):
    upright = seven()
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a quarter turn clockwise
    path = saved(tmp_path, upright.transpose(Image.Transpose.ROTATE_90), "a.jpg", exif=exif)
    found = read_image(path)
    expected = read_image(saved(tmp_path, upright))
    assert correlation(found.digit, expected.digit) > 0.98


def test_the_first_of_several_frames(tmp_path):
    first, other = seven(), seven(at=(10, 10), width=30)
    path = saved(tmp_path, first, "a.gif", save_all=True, append_images=[other])
    expected = read_image(saved(tmp_path, first))
    assert correlation(read_image(path).digit, expected.digit) > 0.98


def test_a_large_image_is_reduced(tmp_path):
    large = seven().resize((3000, 3000))
    found = read_image(saved(tmp_path, large))
    assert found.original.shape == found.grey.shape == (DISPLAY_SIDE, DISPLAY_SIDE)
    expected = read_image(saved(tmp_path, seven()))
    assert correlation(found.digit, expected.digit) > 0.98


# What is rejected


def rejected(path, message):
    with pytest.raises(ImageError, match=message) as caught:
        read_image(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path):
    rejected(tmp_path / "nowhere.png", "cannot be read: No such file or directory")


def test_a_folder(tmp_path):
    rejected(tmp_path, "cannot be read: Is a directory")


@pytest.mark.parametrize("content", [b"", b"no image", b"%PDF-1.4\n"])
def test_a_file_of_another_kind(tmp_path, content):
    path = tmp_path / "a.png"
    path.write_bytes(content)
    rejected(path, "is no image, or of a format that is not known")


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.bmp"])
def test_a_truncated_file(tmp_path, name):
    path = saved(tmp_path, coloured(), name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    rejected(path, "cannot be read: .*trunc")


def test_a_damaged_file(tmp_path):
    path = saved(tmp_path, coloured())
    content = bytearray(path.read_bytes())
    content[60:90] = bytes(30)
    path.write_bytes(content)
    rejected(path, "cannot be read: ")


@pytest.mark.parametrize("side", [9_500, 14_000])
def test_a_huge_image(tmp_path, side):
    """Beyond the size that Pillow warns of, and that it refuses; neither is decoded."""
    path = saved(tmp_path, Image.new("1", (side, side)))
    rejected(path, "cannot be read: Image size .* exceeds limit of")


@pytest.mark.parametrize("grey", [0, 128, 255])
def test_an_empty_image(tmp_path, grey):
    rejected(saved(tmp_path, Image.new("L", (100, 80), grey)), "shows no foreground")


def test_an_empty_sheet_under_noise(tmp_path):
    noisy = np.random.default_rng(0).normal(200, 8, size=(300, 300)).astype(np.uint8)
    noisy[100:102, 50:52] = 0  # dust
    rejected(saved(tmp_path, Image.fromarray(noisy)), "shows no foreground")


def test_an_image_of_two_pixels(tmp_path):
    rejected(saved(tmp_path, Image.new("L", (2, 1))), "is too small")
