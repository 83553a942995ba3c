"""Predictions of a fitted cell for images or table rows: ``pmbnn predict RESULTS FILE…``."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from pmbnn.cli.command import (
    BAD_INPUT,
    FAILED,
    Device,
    Only,
    TrustPlugins,
    check_parent,
    new_console,
    open_results,
    write_or_print,
    writing_file,
    writing_to,
)
from pmbnn.prediction.progress import print_lines

if TYPE_CHECKING:
    import pandas as pd

    from pmbnn.data.digits import UserImage
    from pmbnn.prediction.class_probabilities import ClassProbabilities, Threshold
    from pmbnn.results.loading import StoredCell

BARS = " ▁▂▃▄▅▆▇█"

TABLES = (".csv", ".tsv", ".tab", ".txt", ".parquet", ".pq", ".xlsx", ".xlsm", ".xls", ".ods")
"""Suffixes of tables; a suffix of compression may follow."""


class Answer(NamedTuple):
    """Predictions of a cell for images, with the names of its classes."""

    path: Path
    cell: "StoredCell"
    images: "list[UserImage]"
    classes: list[str]
    prediction: "ClassProbabilities"
    threshold: "Threshold"


def predict(
    cell: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS",
            help="Results folder, or folder of a cell: results/<experiment>/cells/<name>.",
        ),
    ],
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Image files (PNG, JPEG, ...), or one table (CSV, Parquet, Excel).",
        ),
    ],
    best: Annotated[
        bool,
        typer.Option(
            "--best", help="Use the combination with the lowest mean held-out score (NLL)."
        ),
    ] = False,
    only: Only = None,
    draws: Annotated[
        int, typer.Option(min=1, metavar="N", help="Posterior draws of each restart.")
    ] = 200,
    percentile: Annotated[
        float,
        typer.Option(
            min=0,
            max=100,
            metavar="PERCENT",
            help="Reject images that are more uncertain than this share of the images set aside, "
            "or of the test images if none were.",
        ),
    ] = 99.0,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole", help="Scale the whole image instead of cutting out its foreground."
        ),
    ] = False,
    invert: Annotated[
        bool | None,
        typer.Option(
            "--invert/--no-invert",
            help="Foreground is dark on light, or light on dark [default: detected].",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write the predictions for a table to this file."
        ),
    ] = None,
    uncertainty: Annotated[
        bool,
        typer.Option(
            "--uncertainty",
            help="Add columns with the uncertainty of each row of a table, and its parts.",
        ),
    ] = False,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Plot images and probabilities to this PNG file."),
    ] = None,
    beside: Annotated[
        Path | None,
        typer.Option(
            metavar="CELL", help="Another cell to compare with, such as a deterministic one."
        ),
    ] = None,
    device: Device = "auto",
    trust_plugins: TrustPlugins = False,
) -> None:
    """Predict images or the rows of a table with a fitted cell, with uncertainty.

    Of a results folder, --best or --only picks the combination; its first data seed is used.

    Images: the class of each; images that are too uncertain are rejected. A network of `kind:
    images` sees them as they are, as it saw its training images. A table, which must
    have the columns that the network was fitted on: a line a row (CSV), with the class and the
    probability of each, or mean, standard deviations and a 95 % interval, to four digits (JSON has
    all). Columns that the network does not use, such as an identifier, are copied unchanged.

    Exit status: 0 everything was read, 1 some image could not be read, 2 none could or bad
    input, 3 I/O error (disk full, permissions).
    """
    from pmbnn.core.machine import claim, find_devices, running_on
    from pmbnn.data import Images

    devices = find_devices(device)
    if any(map(is_table, files)):
        _check_options(files, figure=figure, beside=beside, whole=whole, invert=invert)
        check_parent(out, "--out")
        opened = _open(cell, best, only or [])
        with running_on(claim(devices[0])):
            _predict_table(opened, cell, files, draws, uncertainty, as_json, out)
        return
    _check_options(files, out=out, uncertainty=uncertainty)
    check_parent(figure, "--figure")
    images, unread = _read_images(files, whole, invert)
    for reason in unread.values():
        typer.echo(f"error: {reason}", err=True)
    if not images:
        raise typer.Exit(BAD_INPUT)
    opened = [_open(cell, best, only or []), *([] if beside is None else [_open(beside)])]
    if any(isinstance(one.record.cell.dataset, Images) for one in opened):
        _check_options(files, whole=whole, invert=invert)
    with running_on(claim(devices[0])):
        answers = [_answer(one, images, draws, percentile) for one in opened]
    _say_which(opened[0], cell)
    if as_json:
        _print_json(answers, unread)
    else:
        for answer in answers:
            _print_tables(answer, "" if len(answers) == 1 else str(answer.path))
    if figure is not None:
        _draw(figure, answers)
        if not as_json:
            typer.echo(f"figure {figure}")
    raise typer.Exit(FAILED if unread else 0)


def _open(path: Path, best: bool = False, only: Sequence[str] = ()) -> "StoredCell":
    """The cell of a folder, or the one that is picked of a results folder."""
    from pmbnn.results.loading import open_cell
    from pmbnn.results.names import invalid_chains
    from pmbnn.results.new_rows import choose_cell
    from pmbnn.results.store import ResultsError

    if (path / "cells").is_dir():
        stored = open_results(path)
        chosen = choose_cell(stored, best, only)
        if refuted := invalid_chains(stored.records).get(chosen.record.name):
            typer.echo(f"warning: {refuted}", err=True)
        return open_cell(chosen)
    if best or only:
        raise ResultsError(f"`--best` and `--only` need a results folder, got `{path}`.")
    return open_cell(path)


def _say_which(cell: "StoredCell", named: Path) -> None:
    """Say which cell was picked, and whether it has not converged."""
    from pmbnn.results.names import cell_line
    from pmbnn.results.record import has_converged

    if cell.folder != named:
        typer.echo(f"cell: {cell_line(cell.record.cell)} ({cell.folder})", err=True)
    if not has_converged(cell.record):
        reason = f" ({cell.record.reason})" if cell.record.reason else ""
        typer.echo(
            f"warning: this cell has not converged{reason}: its predictions may be wrong", err=True
        )


def _check_options(files: list[Path], **others: Any) -> None:
    """Raise DataError if an option is given that is not for such files."""
    from pmbnn.data import DataError

    for name, value in others.items():
        if value not in (None, False):
            raise DataError(f"`--{name}` is not for files such as `{files[0]}`.")


def _read_images(files: list[Path], whole: bool, invert: bool | None):
    """Images that can be read, and the reasons why other files cannot."""
    from pmbnn.data.digits import ImageError, read_image

    images, unread = [], {}
    for path in files:
        try:
            images.append(read_image(path, whole=whole, invert=invert))
        except ImageError as error:
            unread[str(path)] = str(error)
    return images, unread


def _answer(cell: "StoredCell", images: "list[UserImage]", draws: int, percentile: float) -> Answer:
    import numpy as np

    from pmbnn.data import Images
    from pmbnn.data.digits import as_it_is
    from pmbnn.prediction.class_probabilities import rejection_threshold
    from pmbnn.results.store import ResultsError

    path, dataset = cell.folder, cell.record.cell.dataset
    posterior, shape = cell.posterior, images[0].digit.shape
    rows = posterior.origin.parts.rows
    if rows.input_shape != (1, *shape) or not rows.classes:
        raise ResultsError(
            f"`{path}` must be fitted on classes of images of {shape[0]} × {shape[1]} pixels, "
            f"got data set `{dataset.kind}`."
        )
    if isinstance(dataset, Images):  # whose files the network has seen as they are
        images = [as_it_is(image, scaled=bool(dataset.size)) for image in images]
    prediction = posterior.predict(np.stack([image.digit.ravel() for image in images]), draws)
    if not np.isfinite(prediction.mean).all():
        raise ResultsError(f"The predictions of cell `{path}` are not finite.")
    threshold = rejection_threshold(cell.trace, percentile)
    return Answer(path, cell, images, [*rows.classes], prediction, threshold)


def _print_json(answers: list[Answer], unread: dict[str, str]) -> None:
    import json

    first, *others = [
        {
            "cell": str(answer.path),
            "draws": answer.prediction.draws,
            "threshold": {
                "sd": answer.threshold.sd,
                "percentile": answer.threshold.percentile,
                "of": answer.threshold.group,
                "rows": answer.threshold.rows,
            },
            "images": list(_image_rows(answer)),
        }
        for answer in answers
    ]
    errors = [{"file": file, "reason": reason} for file, reason in unread.items()]
    content = first | {"errors": errors} | ({"beside": others[0]} if others else {})
    typer.echo(json.dumps(content, indent=2))


def _image_rows(answer: Answer) -> Iterator[dict[str, Any]]:
    """What is said of each image, as JSON has it."""
    prediction, bit = answer.prediction, math.log(2)
    scores = {
        "sd": prediction.predicted_sd,
        "entropy_bits": prediction.entropy / bit,
        "mutual_information_bits": prediction.mutual_information / bit,
        "expected_error_rate": prediction.expected_error_rate,
    }
    for i, image in enumerate(answer.images):
        probability, best = prediction.mean[i].tolist(), prediction.predicted[i]
        yield {
            "file": str(image.path),
            "inverted": image.inverted,
            "class": answer.classes[best],
            "probability": probability[best],
            **{name: float(score[i]) for name, score in scores.items()},
            "rejected": bool(scores["sd"][i] > answer.threshold.sd),
            "class_probability": dict(zip(answer.classes, probability, strict=True)),
            "class_sd": dict(zip(answer.classes, prediction.sd[i].tolist(), strict=True)),
        }


def _print_tables(answer: Answer, title: str) -> None:
    from rich.table import Table
    from rich.text import Text

    console = new_console()
    numbers = ("probability", "sd", "entropy", "mutual inf.", "expected error")
    verdicts = Table("image", "class", *numbers, "verdict", title=Text(title) if title else None)
    shares = Table("image", *answer.classes, title="probability of each class")
    for row in _image_rows(answer):
        verdicts.add_row(
            Text(row["file"]),
            row["class"],
            _bar(row["probability"]),
            f"{row['sd']:.3f}",
            f"{row['entropy_bits']:.3f} bit",
            f"{row['mutual_information_bits']:.3f} bit",
            f"{row['expected_error_rate']:.1%}",
            Text("rejected", "red") if row["rejected"] else Text("accepted", "green"),
        )
        shares.add_row(Text(row["file"]), *map(_bar, row["class_probability"].values()))
    console.print(verdicts)
    console.print(shares)
    print_lines(console, _rule(answer))


def _bar(share: float) -> str:
    """A share as a number with a bar in front."""
    return f"{BARS[round(share * (len(BARS) - 1))]} {share:.2f}"


def _rule(answer: Answer) -> str:
    """When an image is rejected, in words."""
    limit = answer.threshold
    rows = limit.group.removesuffix("_predictions")
    return (
        f"rejected: sd above {limit.sd:.3f}, which is percentile {limit.percentile:g} of the "
        f"{limit.rows} {rows} images; {answer.prediction.draws} draws"
    )


def _draw(path: Path, answers: list[Answer]) -> None:
    from pmbnn.figures.classification import Predictions
    from pmbnn.figures.image_sheets import plot_own_images
    from pmbnn.figures.style import save_figure
    from pmbnn.results.derived import cells_digest, note_files
    from pmbnn.results.names import cell_title
    from pmbnn.results.present import present_records
    from pmbnn.results.store import Results

    first = answers[0]
    title = " beside\n".join(cell_title(a.cell.record) for a in answers)
    predictions = [
        Predictions(tuple(a.classes), a.prediction.mean, a.prediction.sd) for a in answers
    ]
    title = f"{title}\n{_rule(first)}"
    figure = plot_own_images(first.images, predictions, first.threshold, title)
    results = Results(path.parent.parent)
    with writing_file(path) as part:
        save_figure(figure, part)
    with writing_to(path.parent):
        if path.parent.name == results.figures.name and results.cells.is_dir():
            # A figure within a results folder: which cells it shows is noted there.
            digest = cells_digest(present_records(results))
            note_files(results, [f"{path.parent.name}/{path.name}"], digest, "predict")


# Tables


def is_table(path: Path) -> bool:
    """Whether a file is a table: by its suffix, or because it is text without an image's suffix."""
    if any(suffix.lower() in TABLES for suffix in path.suffixes[-2:]):
        return True
    from PIL import Image

    is_image = path.suffix.lower() in Image.registered_extensions()
    return not is_image and path.is_file() and _is_text(path)


def _is_text(path: Path) -> bool:
    """Whether a file holds text: no control characters but in UTF-16, which says that it is."""
    with path.open("rb") as file:
        start = file.read(2048)
    is_utf_16 = start.startswith((b"\xff\xfe", b"\xfe\xff"))
    return is_utf_16 or (bool(start) and not set(start) & {*range(9), *range(14, 32)})


def _predict_table(
    cell: "StoredCell",
    named: Path,
    files: list[Path],
    draws: int,
    uncertainty: bool,
    as_json: bool,
    out: Path | None,
) -> None:
    """Write what a cell predicts for the rows of a table: CSV or JSON, printed or into a file.

    Raises
    ------
    DataError, ResultsError
        If it is not one table, or cannot be predicted for.
    """
    from pmbnn.data import DataError
    from pmbnn.results.new_rows import predict_rows, records_text, rounded

    if len(files) > 1:
        raise DataError(f"A table must be given alone, got {', '.join(map(str, files))}.")
    (file,) = files
    if not file.exists():
        raise DataError(f"{file} does not exist.")
    if out is not None and out.exists() and out.samefile(file):
        raise DataError(f"`--out` must be another file than the table, got `{out}`.")
    rows, others = _read_table(file, cell)
    table = predict_rows(cell, rows, draws, title=str(file), uncertainty=uncertainty)
    _say_which(cell, named)
    if taken := [name for name in others if name in table]:
        typer.echo(f"left out, as predictions have these names: {', '.join(taken)}", err=True)
    table = others.drop(columns=taken).join(table if as_json else rounded(table))
    text = records_text(table) if as_json else table.to_csv(index=False)
    write_or_print(text, out)


def _read_table(file: Path, cell: "StoredCell") -> "tuple[pd.DataFrame, pd.DataFrame]":
    """The table, in a format of its own; where that is not clear, in that of the training rows.

    Columns of categories stay text; those that the network does not use come second, as text.
    """
    from functools import partial

    from pmbnn.data.base import stamp_of
    from pmbnn.data.table_file import SEPARATORS, Format, read_table
    from pmbnn.results.new_rows import stored_encoder

    dataset = cell.record.cell.dataset
    separator = getattr(dataset, "separator", ",")
    given = Format() if separator in SEPARATORS else Format(separator)
    encoder = stored_encoder(cell)
    texts = {column for column, _ in encoder.categories}
    used = {column for column, _ in encoder.sources}
    decimal = getattr(dataset, "decimal", None)
    read = partial(read_table, stamp_of(file), str(file), given, decimal)
    rows = read(frozenset(texts)).frame
    others = [name for name in rows if name not in used]
    as_text = read(frozenset([*texts, *others])).frame[others] if others else rows[others]
    return rows, as_text
