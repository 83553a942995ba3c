"""Parts of one's own: registered, named in files, known to other processes and to identities."""

import hashlib
import importlib
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Literal

import pandas as pd
import pytest
import yaml

from pmbnn.core.errors import ConfigError
from pmbnn.core.spec import METRICS, Specification
from pmbnn.data.base import DatasetSpec
from pmbnn.data.ood import OOD, NormalNoise, OodSpec
from pmbnn.experiment import plugins
from pmbnn.experiment.load import load_experiment, resolved_text
from pmbnn.experiment.plan import identity, settings_digest
from pmbnn.experiment.plugins import OUTPUTS, TAKEN, experiment_parts, register, sources_of
from pmbnn.figures.overviews import MAP, OF_CLASS_PROBABILITIES, OF_DENSITIES, SURFACE
from pmbnn.models.hyperpriors import HYPERPRIORS, HalfNormal
from pmbnn.models.likelihoods import Likelihood
from pmbnn.models.networks import Dense
from pmbnn.models.prior_base import Prior
from pmbnn.models.priors import PRIORS, Laplace
from pmbnn.prediction.settings import Predict

LOGISTIC = """
from typing import Literal

from pmbnn.experiment.plugins import register
from pmbnn.models.prior_base import Prior
from pmbnn.core.spec import Positive


@register
class Logistic(Prior):
    \"\"\"Logistic prior.\"\"\"

    kind: Literal["logistic"] = "logistic"
    factor: Positive = 1.0

    def variable(self, name, scale, dims, shared):
        import pymc as pm

        return pm.Logistic(name, 0.0, self.factor * scale, dims=dims)
"""

EXPERIMENT = {
    "name": "own",
    "plugins": ["parts/logistic.py"],
    "sweeps": [
        {
            "name": "one",
            "dataset": {"kind": "moons", "noise": 0.4},
            "network": "dense",
            "prior": ["normal", {"kind": "logistic", "factor": [1, 2]}],
        }
    ],
}


IMAGES = {"dataset": "mnist", "prior": "normal", "predict": {"ood": [["logistic"], []]}}
"""Sections of a sweep that names a plugin's images."""


pytestmark = pytest.mark.usefixtures("registries")


@pytest.fixture
def write(tmp_path):
    """Path of an experiment beside a plugin."""

    def written(source=LOGISTIC, **changes):
        (tmp_path / "parts").mkdir(exist_ok=True)
        (tmp_path / "parts/logistic.py").write_text(source)
        file = tmp_path / "own.yaml"
        file.write_text(yaml.safe_dump(EXPERIMENT | changes))
        return file

    return written


# Experiment files


def test_a_plugin_beside_the_file_is_one_more_choice(write):
    cells = load_experiment(write()).cells
    assert [cell.prior.kind for cell in cells] == ["normal", "logistic", "logistic"]
    assert [cell.prior.factor for cell in cells[1:]] == [1.0, 2.0]


def test_the_resolved_experiment_names_the_plugin_as_its_file_does(write, tmp_path):
    """With its digest, and where the file was, seen from the results folder."""
    first = load_experiment(write())
    assert [source.name for source in first.plugins] == ["parts/logistic.py"]
    elsewhere = tmp_path / "results"
    elsewhere.mkdir()
    text = resolved_text(first, elsewhere)
    digest = hashlib.sha256(LOGISTIC.encode()).hexdigest()
    assert yaml.safe_load(text)["plugins"] == [{"file": "parts/logistic.py", "sha256": digest}]
    assert str(tmp_path) not in text
    (elsewhere / "experiment.yaml").write_text(text)
    assert load_experiment(elsewhere / "experiment.yaml") == first


def test_an_experiment_without_plugins_does_not_mention_them(write):
    sweep = EXPERIMENT["sweeps"][0] | {"prior": "normal"}
    assert "plugins" not in resolved_text(load_experiment(write(plugins=[], sweeps=[sweep])))


def test_a_plugin_is_run_once(write):
    file = write()
    first = load_experiment(file).cells[1].prior
    assert type(load_experiment(file).cells[1].prior) is type(first)


def test_a_plugin_that_changed_is_run_again(write):
    load_experiment(write())
    cells = load_experiment(write(LOGISTIC.replace("= 1.0", "= 3.0"))).cells
    assert type(cells[1].prior)().factor == 3.0


def test_classes_of_a_plugin_are_known_in_another_process(write, tmp_path):
    experiment = load_experiment(write())
    stored = tmp_path / "cells.pickle"
    stored.write_bytes(pickle.dumps(experiment.cells))
    code = (
        "import pickle, sys\n"
        "from pathlib import Path\n"
        "from pmbnn.experiment.plugins import load_plugins\n"
        "load_plugins([sys.argv[1]], [Path('.')])\n"
        "print(pickle.loads(Path(sys.argv[2]).read_bytes())[2].prior.factor)"
    )
    command = [sys.executable, "-c", code, experiment.plugins[0].path, str(stored)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "2.0\n"


@pytest.mark.parametrize("script_first", [True, False])
def test_a_script_may_import_the_file_of_its_experiment(write, tmp_path, monkeypatch, script_first):
    """The same file under two names is the same part, and has the same identity."""
    monkeypatch.syspath_prepend(tmp_path / "parts")
    monkeypatch.delitem(sys.modules, "logistic", raising=False)
    file, digests = write(), []
    for script in (script_first, not script_first):
        if script:
            importlib.import_module("logistic")
        else:
            load_experiment(file)
        prior = PRIORS["logistic"]()
        cell = load_experiment(file).cells[1]
        digests.append([list(sources_of(c)) for c in (cell, replace(cell, prior=prior))])
    assert digests[0] == digests[1]
    assert digests[0][0] == digests[0][1] != []


NO_PLUGIN = "`plugins[0]` must be a Python file or a folder with `__init__.py`, got "


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("a.py", "`plugins` must be a list of Python files, got 'a.py'."),
        ([3], NO_PLUGIN + "3."),
        ([""], NO_PLUGIN + "''."),
        (["parts"], NO_PLUGIN + "{folder}/parts."),
        (["own.yaml"], NO_PLUGIN + "{folder}/own.yaml."),
        (["none"], "`plugins[0]` names {folder}/none: No such file or directory."),
        (
            ["parts/logistic.py", "none.py"],
            "`plugins[1]` names {folder}/none.py: No such file or directory.",
        ),
    ],
)
def test_plugins_that_are_none(write, tmp_path, named, message):
    with pytest.raises(ConfigError) as caught:
        load_experiment(write(plugins=named))
    assert str(caught.value) == message.format(folder=tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\n\n1 / 0\n", "line 3) raised ZeroDivisionError: division by zero."),
        ("def f(:\n", "line 1) raised SyntaxError: invalid syntax"),
        ("import json\njson.loads('')\n", "line 2) raised JSONDecodeError: Expecting value"),
        (LOGISTIC.replace('"logistic"', '"laplace"'), "raised ValueError: Prior `laplace` is"),
    ],
)
def test_a_plugin_that_raises_is_named_with_its_line(write, tmp_path, source, message):
    with pytest.raises(ConfigError) as caught:
        load_experiment(write(source))
    assert str(caught.value).startswith(f"`plugins[0]` ({tmp_path}/parts/logistic.py, ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_installed_plugins_are_imported_with_any_experiment(write, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "installed_part.py").write_text(LOGISTIC)
    entry = EntryPoint("part", "installed_part", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry])
    plugins._import_installed.cache_clear()
    assert len(load_experiment(write(plugins=[])).cells) == 3


def test_an_installed_plugin_that_raises_is_named(write, monkeypatch):
    entry = EntryPoint("part", "no_such_module", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry])
    plugins._import_installed.cache_clear()
    with pytest.raises(ConfigError, match="installed plugin `part` raised ModuleNotFoundError"):
        load_experiment(write(plugins=[]))


# Packages

WIDE = LOGISTIC.replace("from pmbnn.core.spec import Positive", "from .parts.factors import Factor")
WIDE = WIDE.replace("Positive", "Factor")
PACKAGE = {
    "__init__.py": "from . import wide\n",
    "wide.py": WIDE,
    "parts/__init__.py": "",
    "parts/factors.py": "from pmbnn.core.spec import Positive as Factor\n",
}


@pytest.fixture
def package(write, tmp_path):
    """Path of an experiment beside a plugin of several files."""

    def written(**changed):
        for file, text in (PACKAGE | changed).items():
            path = tmp_path / "parts" / "own" / file
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(text)
        return write(plugins=["parts/own"])

    return written


def test_a_package_is_one_plugin(package, tmp_path):
    experiment = load_experiment(package())
    assert [cell.prior.kind for cell in experiment.cells] == ["normal", "logistic", "logistic"]
    (source,) = experiment.plugins
    assert (source.name, sorted(source.files)) == ("parts/own/", sorted(PACKAGE))
    assert list(sources_of(experiment.cells[1])) == [source.digest]
    (tmp_path / "experiment.yaml").write_text(resolved_text(experiment, tmp_path))
    assert load_experiment(tmp_path / "experiment.yaml") == experiment
    assert pickle.loads(pickle.dumps(experiment.cells)) == experiment.cells


def test_the_digest_of_a_package_covers_all_files_that_somebody_wrote(package, tmp_path):
    def digest(**changed):
        return load_experiment(package(**changed)).plugins[0].digest

    first = digest()
    (tmp_path / "parts/own/__pycache__").mkdir()
    (tmp_path / "parts/own/__pycache__/wide.pyc").write_bytes(b"")
    (tmp_path / "parts/own/.wide.py.swp").write_text("")
    assert digest() == first
    assert (
        len(
            {
                first,
                digest(**{"parts/factors.py": "from pmbnn.core.spec import Positive as Factor"}),
            }
        )
        == 2
    )
    digests = {first, digest(**{"notes.txt": "one"}), digest(**{"notes.txt": "two"})}
    assert len(digests) == 3
    names = "one.txt", "two.txt"
    sources = (plugins.Source("own/", "own", {name: b"the same"}) for name in names)
    assert len({source.digest for source in sources}) == 2


def test_modules_of_a_package_are_those_that_were_read(package, tmp_path):
    """Not those that are on disk when they are imported."""
    lazy = "def later():\n    from . import late\n    return late.NUMBER\n"
    source = load_experiment(package(**{"__init__.py": f"from . import wide\n{lazy}"})).plugins[0]
    (module,) = [m for m in sys.modules if m.startswith("pmbnn_plugin_own_") and "." not in m]
    (tmp_path / "parts/own/late.py").write_text("NUMBER = 1\n")
    with pytest.raises(ImportError, match="late"):
        sys.modules[module].later()
    assert "late.py" not in source.files


def test_a_package_that_raises_is_named_with_file_and_line(package, tmp_path):
    before = set(sys.modules)
    with pytest.raises(ConfigError) as caught:
        load_experiment(package(**{"parts/factors.py": "\n1 / 0\n"}))
    place = f"{tmp_path}/parts/own/parts/factors.py, line 2"
    assert str(caught.value) == (
        f"`plugins[0]` ({place}) raised ZeroDivisionError: division by zero."
    )
    assert not any(name.startswith("pmbnn_plugin_") for name in set(sys.modules) - before)


# Figures and tables


FIGURES = """
import pmbnn as pb

@pb.register
def residuals(results) -> "Figure":
    return None

@pb.register
def slowest(results) -> "pd.DataFrame":
    return None
"""


def test_figures_and_tables_are_found_by_what_they_return():
    @register
    def one(results) -> "Figure | None":  # noqa: F821
        return None

    @register
    def several(results) -> "dict[str, Figure]":  # noqa: F821
        return {}

    @register
    def counted(results) -> pd.DataFrame:
        return pd.DataFrame()

    assert {"figure": {"one": one, "several": several}, "table": {"counted": counted}} == OUTPUTS


def test_cells_do_not_depend_on_figures_and_tables(write, tmp_path):
    def identities():
        (tmp_path / "figures.py").write_text(FIGURES)
        experiment = load_experiment(write(plugins=["parts/logistic.py", "figures.py"]))
        with experiment_parts(experiment.plugins):
            assert [list(functions) for functions in OUTPUTS.values()] == [
                ["residuals"],
                ["slowest"],
            ]
        return [identity(cell, "data", {}) for cell in experiment.cells]

    before = [identity(cell, "data", {}) for cell in load_experiment(write()).cells]
    assert identities() == before
    load_experiment(write())
    with experiment_parts(load_experiment(write()).plugins):
        assert not any(OUTPUTS.values())


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("f() -> 'Figure'", r"The figure `f` must be a function of the results alone: write "),
        ("f(results, title) -> 'DataFrame'", r"`\(results: ExperimentResults\) -> DataFrame`"),
        ("F(results) -> 'Figure'", "The figure `F` must have a name of small letters, digits and"),
        ("f(results)", "The metric `f` must .* A figure or a table says what it returns"),
    ],
)
def test_a_figure_or_table_of_the_wrong_signature(signature, message):
    names: dict = {}
    exec(f"def {signature}: pass", {"__name__": __name__}, names)
    with pytest.raises(TypeError, match=message):
        register(*names.values())


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("last_layer(results) -> 'Figure'", "figure `last_layer`"),
        ("ood(r) -> 'DataFrame'", "table `ood`"),
        ("log_likelihood(r: 'Density', target)", "metric `log_likelihood`"),  # of training rows
        ("status(r: 'ClassProbabilities', target)", "metric `status`"),  # a column of tables
    ],
)
def test_a_figure_table_or_metric_whose_name_is_taken(write, signature, name):
    source = f"import pmbnn as pb\n@pb.register\ndef {signature}:\n    return None\n"
    with pytest.raises(ConfigError) as caught:
        load_experiment(write(source))
    message = str(caught.value)
    assert f"raised ValueError: A {name} comes with the package: name the one at " in message
    assert message.endswith("logistic.py, line 2 otherwise.")


def test_a_figure_of_another_plugin_has_the_name(write, tmp_path):
    (tmp_path / "figures.py").write_text(FIGURES)
    with pytest.raises(ConfigError, match=r"^`plugins\[1\]` .*figure `residuals` is there already"):
        load_experiment(write(FIGURES, plugins=["parts/logistic.py", "figures.py"]))


def test_the_names_that_are_taken_are_those_of_the_package():
    """Files of tables as the code names them; kinds of figures as it yields or declares them."""
    package = Path(plugins.__file__).parents[1]
    code = "".join(file.read_text("utf-8") for file in package.rglob("*.py"))
    tables = set(re.findall(r'"([a-z_]+)\.csv"', code))
    assert tables == TAKEN["table"]
    overviews = (package / "figures" / "overviews.py").read_text("utf-8")
    figures = set(re.findall(r'yield f?"(?:\{.+\}-)?([a-z-]+)"', overviews))
    figures |= {figure.file for figure in (MAP, SURFACE, *OF_DENSITIES, *OF_CLASS_PROBABILITIES)}
    assert {name.replace("-", "_") for name in figures} == TAKEN["figure"]


# Registering


def test_a_registered_class_is_found_under_its_base():
    @register
    class Wide(HalfNormal):
        kind: Literal["wide"] = "wide"

    assert HYPERPRIORS["wide"] is Wide


def test_images_of_ones_own_are_read_and_written():
    @register
    class Stripes(OodSpec):
        kind: Literal["stripes"] = "stripes"
        widths: tuple[int, ...] = (1, 2)

    predict = Predict(ood=(NormalNoise(), Stripes(widths=(3,))))
    assert Predict.model_validate_json(predict.model_dump_json()) == predict
    assert predict.model_dump(mode="json")["ood"][1] == {"kind": "stripes", "widths": [3]}
    assert OOD["stripes"] is Stripes


def test_images_in_a_file(write):
    source = LOGISTIC.replace("Prior", "OodSpec").replace("models.prior_base", "data.ood")
    sweep = EXPERIMENT["sweeps"][0] | IMAGES
    cells = load_experiment(write(source, sweeps=[sweep])).cells
    assert [[spec.kind for spec in cell.predict.ood] for cell in cells] == [["logistic"], []]


def test_a_taken_name_is_an_error_that_names_both_places():
    with pytest.raises(
        ValueError, match=r"Prior `laplace` is there already: .*priors\.py, line "
    ) as e:

        @register
        class Other(Prior):
            kind: Literal["laplace"] = "laplace"

    assert "test_plugins.py, line" in str(e.value)
    assert PRIORS["laplace"] is Laplace


def test_the_same_class_again_takes_the_place_of_the_first():
    """As when a cell of a notebook runs twice."""

    def define():
        class Again(Prior):
            kind: Literal["again"] = "again"

        return register(Again)

    first, second = define(), define()
    assert first is not second
    assert PRIORS["again"] is second


def test_of_a_module_that_was_changed_and_reloaded_the_last_version_counts(tmp_path, monkeypatch):
    source = (
        "import pandas as pd, pmbnn as pb\n@pb.register\n"
        "def version(results) -> pd.DataFrame:\n    return {}\n"
        "@pb.register\ndef named_{}(results) -> pd.DataFrame:\n    return {}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for number in range(8):
        text = source.format(number, number, number) + "#" * number  # of another size each
        (tmp_path / "own_outputs.py").write_text(text)
        importlib.invalidate_caches()
        importlib.reload(importlib.import_module("own_outputs"))
    with experiment_parts(()):
        assert OUTPUTS["table"]["version"](None) == 7
    assert OUTPUTS["table"]["version"](None) == 7


@pytest.mark.parametrize("part", [int, Specification, Prior, 3])
def test_what_is_of_no_base_is_an_error_that_lists_them(part):
    message = (
        "a metric, a figure or a table .* or a subclass of one of DatasetSpec, Hyperprior, "
        "Likelihood, Network, OodSpec, Prior, got"
    )
    with pytest.raises(TypeError, match=message):
        register(part)


@pytest.mark.parametrize("base", [DatasetSpec, Likelihood])
def test_a_class_without_a_name_is_an_error(base):
    with pytest.raises(TypeError, match="`Nameless` must have a name for experiment files"):
        register(type("Nameless", (base,), {"__module__": __name__}))


# Metrics


def test_a_metric_is_found_by_its_kind_of_prediction():
    @register
    def worst(predictive: "pb.ClassProbabilities", target):  # noqa: F821
        return 1.0

    @register
    def spread(predictive: "Density", target):  # noqa: F821
        return 2.0

    assert {"class_probabilities": {"worst": worst}, "density": {"spread": spread}} == METRICS


def test_a_metric_without_a_kind_of_prediction_is_an_error():
    def worst(predictive, target):
        return 1.0

    with pytest.raises(TypeError, match="The metric `worst` must be a function of a prediction"):
        register(worst)


# Identities


def test_only_cells_with_a_part_of_a_plugin_depend_on_its_source(write):
    def identities(source):
        return [identity(cell, "data", {}) for cell in load_experiment(write(source)).cells]

    sweep = EXPERIMENT["sweeps"][0] | {"prior": "normal"}
    (alone,) = load_experiment(write(plugins=[], sweeps=[sweep])).cells
    before = identity(alone, "data", {})
    first, second = identities(LOGISTIC), identities(LOGISTIC + "\n# changed\n")
    assert first[0] == second[0] == before
    assert not set(first[1:]) & set(second[1:])


def test_prng_keys_do_not_depend_on_the_source(write):
    digests = [
        [settings_digest(cell) for cell in load_experiment(write(source)).cells]
        for source in (LOGISTIC, LOGISTIC + "\n# changed\n")
    ]
    assert digests[0] == digests[1]


def test_a_class_within_a_cell_counts_wherever_it_is(write):
    source = LOGISTIC.replace("Prior", "OodSpec").replace("models.prior_base", "data.ood")
    sweep = EXPERIMENT["sweeps"][0] | IMAGES
    cells = load_experiment(write(source, sweeps=[sweep])).cells
    assert [len(sources_of(cell)) for cell in cells] == [1, 0]


def test_a_class_derived_from_one_of_a_plugin_depends_on_both(write, tmp_path):
    (tmp_path / "derived.py").write_text(
        "from typing import Literal\n"
        "from pmbnn.experiment.plugins import register\n"
        "from pmbnn.models.priors import PRIORS\n"
        "@register\n"
        "class Derived(PRIORS['logistic']):\n"
        "    kind: Literal['derived'] = 'derived'\n"
    )
    sweep = EXPERIMENT["sweeps"][0] | {"prior": "derived"}
    file = write(plugins=["parts/logistic.py", "derived.py"], sweeps=[sweep])
    assert len(sources_of(load_experiment(file).cells[0])) == 2


def test_a_metric_counts_for_cells_of_its_kind_of_prediction(write):
    cell = load_experiment(write()).cells[0]
    before = identity(cell, "data", {})

    @register
    def spread(predictive: "Density", target):  # noqa: F821
        return 2.0

    assert identity(cell, "data", {}) == before

    @register
    def worst(predictive: "ClassProbabilities", target):  # noqa: F821
        return 1.0

    assert identity(cell, "data", {}) != before


def test_a_network_of_ones_own_in_a_notebook_has_a_source(monkeypatch):
    """Where a module has no file, the sources of the methods stand for it."""
    monkeypatch.delattr(sys.modules[__name__], "__file__")

    def define(n):
        class Small(Dense):
            kind: Literal["small"] = "small"
            depth: int = n

            def size(self, input_shape, n_outputs):
                return 1

        return plugins._origin(Small).digest

    assert define(1) == define(1) != define(2)
