"""Ask a fitted network about images or rows of one's own: ``pmbnn predict RESULT_CELL FILE…``."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from pmbnn.cli.predict_table import is_table, predict_table
from pmbnn.cli.shared import (
    BAD_INPUT,
    FAILED,
    Command,
    Device,
    TrustPlugins,
    check_folder_of,
    new_console,
    reported,
    written,
)

if TYPE_CHECKING:
    from pmbnn.data.own_images import OwnImage
    from pmbnn.prediction.posterior import Posterior
    from pmbnn.prediction.rejection import Classification, Threshold
    from pmbnn.results.loading import StoredCell

BARS = " ▁▂▃▄▅▆▇█"

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class Answer(NamedTuple):
    """What was found for the images that could be read, and why others could not."""

    cell: "StoredCell"
    images: "list[OwnImage]"
    classifications: "list[Classification]"
    threshold: "Threshold"
    unread: dict[str, str]
    draws: int


@app.command(cls=Command)
def predict(
    cell: Annotated[
        Path,
        typer.Argument(
            metavar="RESULT_CELL", help="Folder of a cell: results/<experiment>/cells/<name>."
        ),
    ],
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Image files (PNG, JPEG, ...), or one table (CSV, Parquet, Excel).",
        ),
    ],
    draws: Annotated[int, typer.Option(min=1, help="Posterior draws of each restart.")] = 200,
    percentile: Annotated[
        float,
        typer.Option(
            min=0,
            max=100,
            help="Reject what is more uncertain than this share of the held-out digits.",
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
            help="Foreground is dark on light, or light on dark [default: what stands out more].",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write the answers for a table into this file.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw images and probabilities into this PNG file.")
    ] = None,
    beside: Annotated[
        Path | None,
        typer.Option(
            metavar="RESULT_CELL", help="Another cell, such as a deterministic one, to compare."
        ),
    ] = None,
    device: Device = "auto",
    trust_plugins: TrustPlugins = False,
) -> None:
    """Tell what a fitted network makes of images or of the rows of a table, and how sure it is.

    Of images: which digit each shows; what is too unsure is rejected. Of a table, which must have
    the columns that the network was fitted on: a line a row (CSV), with the class and the
    probability of each, or mean, standard deviations and a 95 % interval.

    Exit status: 0 everything was read, 1 some image could not be, 2 none could or bad
    input, 3 the system stood in the way (a full disk).
    """
    from pmbnn.data import DataError
    from pmbnn.inference.device import DeviceError, claim, find_devices, running_on
    from pmbnn.results.store import ResultsError

    with reported(DataError, DeviceError, ResultsError):
        devices = find_devices(device)
        if any(map(is_table, files)):
            of_images = {"figure": figure, "beside": beside, "whole": whole, "invert": invert}
            _check_options(files, of_images)
            with running_on(claim(devices[0])):
                predict_table(cell, files, draws, as_json, out)
            return
        _check_options(files, {"out": out})
        images, unread = _read(files, whole, invert)
        cells = [cell] if beside is None else [cell, beside]
        with running_on(claim(devices[0])):
            code = _predict(cells, images, unread, draws, percentile, as_json, figure)
    raise typer.Exit(code)


def _check_options(files: list[Path], others: dict[str, Any]) -> None:
    """Raise DataError where an option is given that is not for such files."""
    from pmbnn.data import DataError

    for name, value in others.items():
        if value not in (None, False):
            raise DataError(f"`--{name}` is not for files such as `{files[0]}`.")


def _predict(cells, images, unread, draws, percentile, as_json, figure) -> int:
    check_folder_of(figure, "--figure")
    for reason in unread.values():
        typer.echo(f"error: {reason}", err=True)
    if not images:
        return BAD_INPUT
    answers = [_answer(cell, images, unread, draws, percentile) for cell in cells]
    if as_json:
        _print_json(cells, answers)
    else:
        for cell, answer in zip(cells, answers, strict=True):
            _print_tables(answer, "" if len(cells) == 1 else str(cell))
    if figure is not None:
        _draw(figure, answers)
        if not as_json:
            typer.echo(f"figure {figure}")
    return FAILED if unread else 0


def _read(files: list[Path], whole: bool, invert: bool | None):
    """Images that can be read, and the reasons why other files cannot."""
    from pmbnn.data.own_images import ImageError, read_image

    images, unread = [], {}
    for path in files:
        try:
            images.append(read_image(path, whole=whole, invert=invert))
        except ImageError as error:
            unread[str(path)] = str(error)
    return images, unread


def _answer(cell: Path, images, unread, draws: int, percentile: float) -> Answer:
    import numpy as np

    from pmbnn.prediction.rejection import classify, rejection_threshold
    from pmbnn.results.restore import open_cell
    from pmbnn.results.store import ResultsError

    opened = open_cell(cell)
    posterior, shape = opened.posterior, images[0].digit.shape
    if posterior.origin.parts.rows.input_shape != (1, *shape):
        raise ResultsError(
            f"`{cell}` must be fitted on images of {shape[0]} × {shape[1]} pixels, "
            f"got data set `{opened.record.cell.dataset.kind}`."
        )
    x = np.stack([image.digit.ravel() for image in images])
    parts, weights = zip(*_draws(posterior, x, draws), strict=True)
    p, weight = np.concatenate(parts), np.concatenate(weights)
    if not np.isfinite(p).all():
        raise ResultsError(f"The predictions of cell `{cell}` are not finite.")
    limit = rejection_threshold(opened.trace, percentile)
    return Answer(opened, images, classify(p, weight), limit, unread, len(weight))


def _draws(posterior: "Posterior", x, draws: int) -> Iterator[tuple]:
    """Probabilities ``(draw, observation, class)`` of each restart, and weights of its draws."""
    import numpy as np

    for weight, drawn in posterior.single_draws(x, draws):
        p = drawn["probability"]
        yield p, np.full(len(p), weight / len(p))


def _print_json(cells: list[Path], answers: list[Answer]) -> None:
    import json

    first, *others = [_cell_json(c, a) for c, a in zip(cells, answers, strict=True)]
    errors = [{"file": file, "reason": reason} for file, reason in answers[0].unread.items()]
    content = first | {"errors": errors} | ({"beside": others[0]} if others else {})
    typer.echo(json.dumps(content, indent=2))


def _cell_json(cell: Path, answer: Answer) -> dict[str, Any]:
    return {
        "cell": str(cell),
        "draws": answer.draws,
        "threshold": {
            "sd": answer.threshold.sd,
            "percentile": answer.threshold.percentile,
            "of": answer.threshold.group,
            "rows": answer.threshold.rows,
        },
        "images": [
            _as_json(image, found, answer)
            for image, found in zip(answer.images, answer.classifications, strict=True)
        ],
    }


def _as_json(image: "OwnImage", found: "Classification", answer: Answer) -> dict[str, Any]:
    names = _classes(answer)
    return {
        "file": str(image.path),
        "inverted": image.inverted,
        "class": names[found.predicted],
        "probability": float(found.probability[found.predicted]),
        "sd": found.uncertainty,
        "entropy_bits": found.entropy,
        "mutual_information_bits": found.mutual_information,
        "expected_error_rate": found.expected_error_rate,
        "rejected": answer.threshold.rejects(found),
        "class_probability": dict(zip(names, found.probability.tolist(), strict=True)),
        "class_sd": dict(zip(names, found.sd.tolist(), strict=True)),
    }


def _print_tables(answer: Answer, title: str) -> None:
    from rich.table import Table
    from rich.text import Text

    console = new_console()
    numbers = ("probability", "sd", "entropy", "mutual inf.", "expected error")
    verdicts = Table("image", "class", *numbers, "verdict", title=Text(title) if title else None)
    shares = Table("image", *_classes(answer), title="probability of each class")
    for image, found in zip(answer.images, answer.classifications, strict=True):
        rejected = answer.threshold.rejects(found)
        best = float(found.probability[found.predicted])
        verdicts.add_row(
            Text(str(image.path)),
            _classes(answer)[found.predicted],
            _bar(best),
            f"{found.uncertainty:.3f}",
            f"{found.entropy:.3f} bit",
            f"{found.mutual_information:.3f} bit",
            f"{found.expected_error_rate:.1%}",
            Text("rejected", "red") if rejected else Text("accepted", "green"),
        )
        shares.add_row(Text(str(image.path)), *map(_bar, found.probability.tolist()))
    console.print(verdicts)
    console.print(shares)
    console.print(_rule(answer), soft_wrap=True, highlight=False)


def _bar(share: float) -> str:
    """A share as a number with a bar in front."""
    return f"{BARS[round(share * (len(BARS) - 1))]} {share:.2f}"


def _rule(answer: Answer) -> str:
    """When an image is rejected, in words."""
    limit = answer.threshold
    rows = limit.group.removesuffix("_predictions")
    return (
        f"rejected: sd above {limit.sd:.3f}, which is percentile {limit.percentile:g} of the "
        f"{limit.rows} {rows} digits; {answer.draws} draws"
    )


def _classes(answer: Answer) -> list[str]:
    return [str(name) for name in answer.cell.posterior.coords["output"]]


def _draw(path: Path, answers: list[Answer]) -> None:
    from pmbnn.figures.own_images import plot_compared_predictions, plot_own_images
    from pmbnn.figures.style import save_figure
    from pmbnn.results.names import cell_title

    answer, *others = answers
    title = " beside\n".join(cell_title(a.cell.record) for a in answers)
    title, classes = f"{title}\n{_rule(answer)}", _classes(answer)
    found = [a.classifications for a in answers]
    if others:
        args = answer.images, *found, classes, title, answer.threshold
        figure = plot_compared_predictions(*args)
    else:
        figure = plot_own_images(answer.images, *found, answer.threshold, classes, title)
    with written(path):
        save_figure(figure, path)
        _note(path)


def _note(path: Path) -> None:
    """Have a results folder that the figure lies in know of which cells it was made."""
    from pmbnn.results.derived import cells_digest, note_files
    from pmbnn.results.present import present_records
    from pmbnn.results.store import Results

    results = Results(path.parent.parent)
    if path.parent.name == results.figures.name and results.cells.is_dir():
        digest = cells_digest(present_records(results))
        note_files(results, [f"{path.parent.name}/{path.name}"], digest, "predict")


if __name__ == "__main__":
    app()
