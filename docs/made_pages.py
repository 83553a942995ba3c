"""Pages that are made when the site is built: settings, glossary, gallery, names, notebooks.

The gallery's figures are those of a sweep that runs now, so that they are always what this version
draws.
"""

import inspect
import json
import re
import shutil
import sys
from base64 import b64decode
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin

import pmbnn as pb
from pmbnn.core.spec import Registry, Specification
from pmbnn.experiment.axes import are_kinds, classes_by_kind, specification_classes, union_parts
from pmbnn.experiment.cells import SOURCES
from pmbnn.experiment.schema import TEXTS, default_text, field_descriptions
from pmbnn.report.glossary import TERMS, VERDICTS

MADE = "made"
"""Folder of the pages, beneath that of the documents."""

IMAGES = "images"
"""Folder of their pictures, beneath that."""

GALLERY = "gallery.yaml"

FIGURES = {
    "maps": "Every prior and hyperprior: class probability and its uncertainty",
    "map": "One cell: class probability, and its standard deviation over draws",
    "accuracy": "Accuracies, with standard errors over data seeds",
    "design": "Priors and hyperpriors beside each other",
    "scales": "Learned scales of the layers",
    "last-layer": "Weights of the last layer",
    "network": "A network: means and standard deviations of its weights",
    "points": "The rows",
    "reliability": "Reliability: predicted probabilities against frequencies",
    "uncertainty-parts": "Total uncertainty, and its aleatoric and epistemic parts",
    "curves": "A regression: the mean, and bands of the function and of new observations",
    "predicted-observed": "Predicted against observed values of the test rows",
    "pit": "Probability integral transform: are predicted distributions calibrated?",
}
"""Kinds of figures of the gallery's own sweep, as `pmbnn.plot` calls them, and captions."""

STORED = {
    "trust/synthetic-circles-noise-0.35-factor-0.5-engine-compiled-posterior": (
        "Fits beside the posterior",
        "trust",
    ),
    "in_between/in-between-points-origin-gap": ("Uncertainty in a gap between data", "in_between"),
    "mnist_priors/mnist-mnist-grid": ("Priors and hyperpriors on MNIST", "mnist_priors"),
    "mnist_backprop/own-images": ("Photographs, read by a network", "mnist_backprop"),
    "mnist_backprop/published-mnist-ood": ("Uncertainty on other images", "mnist_backprop"),
    "calibration/moons-normal-half-normal": ("Simulation-based calibration", "trust"),
}
"""Figures of this repository's experiments: files under ``results/reference``, captions, and the
experiment."""


def setup(app) -> dict[str, bool]:
    """Have Sphinx call what makes the pages."""
    # Before Sphinx looks for documents.
    app.connect("config-inited", make_pages)
    return {"parallel_read_safe": True}


def make_pages(app, config) -> None:
    """Write the pages that are missing, or that would change."""
    folder = Path(app.confdir) / MADE
    folder.mkdir(exist_ok=True)
    _write(folder / "settings.md", settings_page())
    _write(folder / "api.rst", api_page())
    _write(folder / "glossary.md", glossary_page())
    for notebook in Path(app.confdir).glob("*.ipynb"):
        _write(folder / f"{notebook.stem}.md", notebook_page(notebook, folder))
    _write(folder / "gallery.md", gallery_page(folder, Path(app.confdir) / GALLERY))


def _write(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


# Settings


def settings_page() -> str:
    """Every setting of an experiment file, from the classes and their docstrings."""
    parts = [SETTINGS]
    shown: set[type[Specification]] = set()
    for section, source in SOURCES.items():
        parts += [f"## `{section}`", TEXTS[section]]
        classes = source if isinstance(source, Registry) else {"": source}
        # Two names of one class have one part.
        waiting = [
            (cls, ", ".join(f"`{name}`" for name in names if name))
            for cls, names in groupby(classes, classes.get)
        ]
        for cls, heading in waiting:  # which grows
            if cls not in shown:
                shown.add(cls)
                parts += _class_parts(cls, heading)
                waiting += _inner(cls)
    return "\n\n".join(parts) + "\n"


SETTINGS = """# Every setting

Each section of a sweep is a name, such as `prior: laplace`, or a mapping, such as
`prior: {kind: laplace, fan_in: true}`. A list where one value belongs is an axis: every
combination is fitted. A setting that is a list itself is written as a list of lists.

This page is made from the classes of the package. `pmbnn schema --out pmbnn.schema.json` writes
the same as a JSON Schema, by which editors complete and check experiment files."""


def _class_parts(cls: type[Specification], heading: str) -> list[str]:
    """Heading, description, settings and references of a class."""
    prose, *sections = re.split(r"\n\n(\w+)\n-+\n", inspect.cleandoc(cls.__doc__ or ""))
    references = dict(zip(sections[::2], sections[1::2], strict=True)).get("References")
    parts = [f"### {heading}"] if heading else []
    parts.append(re.sub(r"\n\n +(.*)", r"\n\n```text\n\1\n```", _markdown(prose)))
    plain = cls.model_json_schema(by_alias=False)["properties"]
    texts = field_descriptions(cls)
    for name, field in cls.model_fields.items():
        if name in ("kind", "engine") and "const" in plain[name]:
            continue
        default = default_text(field) and f"default `{default_text(field)}`"
        needed = "required" if field.is_required() else default
        values = ", ".join(filter(None, [_values(plain[name], field.annotation), needed]))
        parts.append(f"`{name}`: {values}\n: {_markdown(texts[name])}")
    if references:
        parts.append(f"Reference: {_markdown(' '.join(references.split()))}")
    return parts


def _inner(cls: type[Specification]) -> list[tuple[type[Specification], str]]:
    """Classes that are values of the fields of a class, with headings."""
    return [
        (inner, f"`{field}`" if field == name else f"`{field}`: `{name}`")
        for field, info in cls.model_fields.items()
        for name, inner in _choices(info.annotation).items()
    ]


def _choices(annotation: object) -> dict[str, type[Specification]]:
    """Specifications that an annotation allows, alone or in a list, by their names in a file."""
    entries = [get_args(part)[0] for part in union_parts(annotation) if get_origin(part) is tuple]
    classes = [cls for part in (annotation, *entries) for cls in specification_classes(part)]
    if are_kinds(classes):
        return classes_by_kind(classes)
    return {cls.__name__.lower(): cls for cls in classes}


BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}


def _values(plain: dict[str, Any], annotation: object) -> str:
    """The values that a setting takes."""
    texts = [
        f"`{name}`" if "kind" in cls.model_fields or not cls.expands else "mapping"
        for name, cls in _choices(annotation).items()
    ]
    lists_of = "list of " if texts and plain.get("type") == "array" else ""
    for option in [] if lists_of else plain.get("anyOf", [plain]):
        if "enum" in option or "const" in option:
            texts += [f"`{name}`" for name in option.get("enum") or [option["const"]]]
        elif option.get("type", "null") not in ("null", "object"):
            bounds = [
                f"{sign} {option[key]:g}"
                for key, sign in BOUNDS.items()
                if option.get(key, 2**32) < 2**32
            ]
            name = option["type"].replace("array", "list")
            texts.append(" ".join([name, " and ".join(bounds)]).strip())
    return lists_of + " or ".join(", ".join(texts).rsplit(", ", 1))


def _markdown(text: str) -> str:
    """Text of a docstring in Markdown."""
    return text.replace("``", "`")


# Glossary


def glossary_page() -> str:
    """Terms and verdicts, as the page of a sweep explains them."""
    parts = ["# Glossary"]
    for heading, meanings in (("Terms", TERMS), ("Verdicts", VERDICTS)):
        entries = "\n\n".join(f"{term}\n  {text}" for term, text in meanings.items())
        parts.append(f"## {heading}\n\n```{{glossary}}\n{entries}\n```")
    return "\n\n".join(parts) + "\n"


# Public names


def api_page() -> str:
    """The public names, by the room of the package that they are of."""
    rooms: dict[str, list[str]] = {}
    for name in sorted(pb.__all__):
        room = getattr(getattr(pb, name), "__module__", "").split(".")
        if len(room) > 1 and name != "Positive":  # which is no class
            rooms.setdefault(room[1], []).append(name)
    parts = [_heading("Python", "="), "Public names, usually of ``import pmbnn as pb``."]
    for room, heading in ROOMS.items():
        names = rooms.pop(room)
        parts += [_heading(heading, "-"), *(_documented("pmbnn", n, room) for n in names)]
    parts += [_heading("Every part of an experiment file", "-"), *_namespaces()]
    assert not rooms, f"rooms without a heading: {', '.join(rooms)}"
    parts += [_heading("Custom training loops", "-")]
    parts += [_documented("pmbnn.inference.advi", name) for name in sorted(pb.advi.__all__)]
    parts += [_heading("Checks for parts of your own", "-")]
    parts += [_documented("pmbnn.testing", name) for name in sorted(pb.testing.__all__)]
    return "\n\n".join(parts) + "\n"


ROOMS = {
    "estimators": "Estimators of scikit-learn",
    "prediction": "Fits and draws of any PyMC model",
    "sweep": "Sweeps",
    "results": "Results",
    "figures": "Figures",
    "experiment": "Experiment files",
    "data": "Data sets",
    "models": "Models, networks, priors and likelihoods",
    "inference": "Settings of fits",
    "core": "Values to choose from",
}
"""Rooms of the package that public names are of, in the order of the page, and their headings."""


def _namespaces() -> list[str]:
    """What the modules among the public names hold, a line each."""
    modules = {
        name: getattr(pb, name) for name in sorted(pb.__all__) if name not in ("advi", "testing")
    }
    return [
        f"``pb.{name}``: " + ", ".join(f"``{part}``" for part in _classes(module))
        for name, module in modules.items()
        if isinstance(module, ModuleType)
    ]


def _classes(module: ModuleType) -> list[str]:
    return [n for n in sorted(module.__all__) if isinstance(getattr(module, n), type)]


def _heading(words: str, line: str) -> str:
    return f"{words}\n{line * len(words)}"


WITH_METHODS = ("estimators", "prediction", "results")
"""Rooms whose classes are used by their methods."""


OF_SCIKIT_LEARN = (
    "score, get_params, set_params, get_metadata_routing, set_fit_request, set_predict_request, "
    "set_score_request"
)
"""Inherited methods, which refer to pages of scikit-learn's own."""


def _documented(module: str, name: str, room: str = "") -> str:
    found = getattr(sys.modules[module], name)
    is_class = isinstance(found, type)
    directive = f".. auto{'class' if is_class else 'function'}:: {module}.{name}"
    members = f"\n   :members:\n   :inherited-members:\n   :exclude-members: {OF_SCIKIT_LEARN}"
    used = is_class and room in WITH_METHODS and not issubclass(found, Specification)
    return directive + members if used else directive


# Notebooks


def notebook_page(path: Path, folder: Path) -> str:
    """Text, code and outputs of a notebook as it is stored; its pictures go into the folder.

    The suite runs the notebook in a kernel, and holds that its outputs are stored.
    """
    parts, pictures = [], 0
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] != "code":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{path.stem}-{(pictures := pictures + 1)}.png"
                (folder / IMAGES).mkdir(exist_ok=True)
                (folder / IMAGES / name).write_bytes(b64decode(data["image/png"]))
                parts.append(f"![Figure {pictures} of this page]({IMAGES}/{name})")
            elif "text/html" in data:
                parts.append("```{raw} html\n" + "".join(data["text/html"]) + "\n```")
            else:
                text = "".join(output.get("text") or data.get("text/plain", ""))
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + f"\n\nAs a notebook: {{download}}`{path.name} <../{path.name}>`.\n"


# Gallery


def gallery_page(folder: Path, experiment: Path) -> str:
    """Figures of a small sweep, which runs unless its results are there, and stored ones."""
    results, images = folder / "results", folder / IMAGES
    pb.run(experiment, out=results, quiet=True)
    images.mkdir(exist_ok=True)
    cards = []
    for kind, caption in FIGURES.items():
        drawn = _first_figure(results, kind)
        if drawn is not None:
            shutil.copyfile(drawn, images / f"{kind}.png")
            code = f'`pb.plot(results, "{kind}")`'
            cards.append(_card(caption, f"{IMAGES}/{kind}.png", code))
    stored = [
        _card(caption, f"../../results/reference/{file}.png", f"`experiments/{name}.yaml`")
        for file, (caption, name) in STORED.items()
    ]
    return "\n\n".join(
        [
            # The pictures take the width of the table of contents.
            "---\nhtml_theme.sidebar_secondary.remove: true\n---",
            "# Gallery",
            "Click a picture to enlarge it. A sweep draws these figures by itself; "
            "`pb.plot` draws them again from a results folder.",
            "## Figures of every sweep",
            *_grid(cards),
            "The experiment behind them, which ran when this site was built:",
            f"```yaml\n{experiment.read_text(encoding='utf-8')}```",
            "## From the experiments of this repository",
            *_grid(stored),
        ]
    )


def _grid(cards: list[str]) -> list[str]:
    return ["::::{grid} 1 1 2 2\n:gutter: 2", *cards, "::::"]


def _card(caption: str, image: str, source: str) -> str:
    """A picture with its caption, which opens in full size."""
    # Sphinx copies all pictures into one folder.
    full = f"../../_images/{Path(image).name}"
    return (
        f":::{{grid-item-card}} {caption}\n```{{image}} {image}\n:alt: {caption}\n"
        f":target: {full}\n```\n\n{source}\n:::"
    )


def _first_figure(results: Path, ending: str) -> Path | None:
    found = sorted(results.glob(f"figures/*-{ending}.png"))
    found = found or sorted(results.glob(f"cells/*/{ending}.png"))
    return found[0] if found else None
