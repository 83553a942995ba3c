"""Pages that are made when the site is built: settings, gallery, public names, notebooks.

The gallery's figures are those of a sweep that runs now, so that they are always what this version
draws.
"""

import json
import shutil
import sys
from base64 import b64decode
from itertools import groupby
from pathlib import Path
from types import ModuleType

import pmbnn as pb
from pmbnn.core.spec import Registry, Specification
from pmbnn.experiment.cells import SOURCES
from pmbnn.experiment.schema import TEXTS, field_descriptions

MADE = "made"
"""Folder of the pages, beneath that of the documents."""

IMAGES = "images"
"""Folder of their pictures, beneath that."""

GALLERY = "gallery.yaml"

FIGURES = {
    "map": "A cell: the probability of a class, and how far it varies over draws of the weights",
    "maps": "Every prior and hyperprior of a data set, on the same scales of colour",
    "accuracy": "Their accuracies, with standard errors over data seeds",
    "design": "What priors and hyperpriors do, each beside the other",
    "scales": "Learned scales of the layers",
    "last-layer": "Weights of the last layer",
    "network": "A network with the means and standard deviations of its weights",
    "points": "The rows",
    "curves": "A regression: the mean, and bands of the function and of new observations",
}
"""What is shown, by how the names of files end, and what it is."""


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
    for notebook in Path(app.confdir).glob("*.ipynb"):
        _write(folder / f"{notebook.stem}.md", notebook_page(notebook, folder))
    _write(folder / "gallery.md", gallery_page(folder, Path(app.confdir) / GALLERY))


def _write(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


# Settings


def settings_page() -> str:
    """Every setting of an experiment file, from the classes and their docstrings."""
    parts = [
        "# Every setting",
        "Made from the classes of specifications. A list where one value belongs is an axis.",
    ]
    for section, source in SOURCES.items():
        parts += [f"## `{section}`", TEXTS[section]]
        classes = source if isinstance(source, Registry) else {"": source}
        tag = source.tag if isinstance(source, Registry) else None
        # Two names of one class have one part.
        for cls, names in groupby(classes, classes.get):
            heading = ", ".join(f"`{name}`" for name in names if name)
            parts += _class_parts(cls, heading, tag)
    return "\n\n".join(parts) + "\n"


def _class_parts(cls: type[Specification], heading: str, tag: str | None) -> list[str]:
    summary, *_ = (cls.__doc__ or "").split("\n\n")
    parts = [f"### {heading}"] if heading else []
    parts.append(" ".join(summary.split()))
    words, rows = field_descriptions(cls), []
    for name, field in cls.model_fields.items():
        if name == tag and not heading.count(","):
            continue
        default = "required" if field.is_required() else f"`{_default(field)}`"
        rows.append(f"| `{name}` | {default} | {_cell(words.get(name, ''))} |")
    if rows:
        head = ["| setting | default | meaning |", "| --- | --- | --- |"]
        parts.append("\n".join([*head, *rows]))
    return parts


def _default(field) -> str:
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Specification):
        return getattr(value, "kind", type(value).__name__.lower())
    return "none" if value is None else str(value)


def _cell(text: str) -> str:
    """Words of a docstring in a cell of a table."""
    return text.replace("``", "`").replace("|", "\\|")


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
    "spec": "Values to choose from",
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
    "score, get_params, set_params, get_metadata_routing, set_predict_request, set_score_request"
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
    """Figures of a small sweep, which is run where its results are not there yet."""
    results, images = folder / "results", folder / IMAGES
    pb.run(experiment, out=results, quiet=True)
    images.mkdir(exist_ok=True)
    parts = [
        "# Gallery",
        "Figures of this experiment, run and drawn when the site was built:",
        f"```yaml\n{experiment.read_text(encoding='utf-8')}```",
    ]
    for ending, words in FIGURES.items():
        found = _first_figure(results, ending)
        if found is not None:
            shutil.copyfile(found, images / f"{ending}.png")
            parts += [f"## {words}", f"![{words}]({IMAGES}/{ending}.png)"]
    return "\n\n".join(parts) + "\n"


def _first_figure(results: Path, ending: str) -> Path | None:
    found = sorted(results.glob(f"figures/*-{ending}.png"))
    found = found or sorted(results.glob(f"cells/*/{ending}.png"))
    return found[0] if found else None
