"""Networks in experiment files: what is read, how it is named, and what does not fit."""

import pytest

from pmbnn.experiment.cells import cell_label
from pmbnn.experiment.load import ConfigError, load_experiment, resolved_text
from pmbnn.experiment.plan import group_key, plan_lines, width
from pmbnn.experiment.selection import select_cells
from pmbnn.models.networks import (
    Convolution,
    DenseLayer,
    Flatten,
    Layered,
    Lenet5,
    MaxPool,
    ReportConv,
)

MNIST, MOONS = "{kind: mnist, source: embedded}", "{kind: moons, noise: 0.4}"

WRITTEN = """
      kind: layers
      layers:
        - - {kind: convolution, filters: 32, size: 5}
          - max_pool
          - flatten
          - {kind: dense, units: 64}
"""
READ = Layered(layers=(Convolution(filters=32, size=5), MaxPool(), Flatten(), DenseLayer(units=64)))


@pytest.fixture
def load(tmp_path):
    """Experiment of one sweep with the given network."""

    def load_text(network, dataset=MNIST):
        path = tmp_path / "experiment.yaml"
        sections = f"dataset: {dataset}\n    network: {network}\n    prior: normal"
        path.write_text(f"name: test\nsweeps:\n  - name: one\n    {sections}\n", "utf-8")
        return load_experiment(path)

    return load_text


def networks(experiment):
    return [cell.network for cell in experiment.cells]


def test_layers(load):
    assert networks(load(WRITTEN)) == [READ]


def test_lists_of_layers_are_an_axis(load):
    found = load("{kind: layers, layers: [[flatten], [max_pool, flatten], [flatten, flatten]]}")
    layers = [(Flatten(),), (MaxPool(), Flatten()), (Flatten(), Flatten())]
    assert networks(found) == [Layered(layers=one) for one in layers]


def test_lists_within_layers_are_axes(load):
    layers = "[max_pool, flatten, {kind: dense, units: [3, 4], activation: [relu, tanh]}]"
    found = networks(load(f"{{kind: layers, layers: [{layers}]}}"))
    last = [DenseLayer(units=n, activation=a) for n in (3, 4) for a in ("relu", "tanh")]
    assert found == [Layered(layers=(MaxPool(), Flatten(), one)) for one in last]


def test_names(load):
    found = networks(load("[report_conv, {kind: lenet5, activation: [relu, tanh]}]"))
    assert found == [ReportConv(), Lenet5(), Lenet5(activation="tanh")]


def test_points_take_layers_too(load):
    layers = "[flatten, {kind: dense, units: 3}]"
    assert load(f"{{kind: layers, layers: [{layers}]}}", MOONS).cells


@pytest.mark.parametrize(
    "network",
    [WRITTEN, "report_conv", "lenet5", "{kind: layers, layers: [[flatten], [max_pool, flatten]]}"],
)
def test_resolved_experiment_reads_back(load, tmp_path, network):
    first = load(network)
    path = tmp_path / "resolved.yaml"
    path.write_text(resolved_text(first), "utf-8")
    again = load_experiment(path)
    assert again == first
    assert hash(again.cells) == hash(first.cells)


# Names


def test_label(load):
    (cell,) = load(WRITTEN).cells
    network = "layers-conv32x5-pool2-flatten-dense64"
    assert cell_label(cell) == f"mnist-embedded-seed0_{network}_normal_fixed"
    assert any(f"mnist {network} normal fixed" in line for line in plan_lines(load(WRITTEN)))


def test_label_shows_what_is_unusual(load):
    convolution = "{kind: convolution, filters: 6, size: 5, padding: same, activation: relu}"
    pool = "{kind: max_pool, size: 3}"
    (cell,) = load(f"{{kind: layers, layers: [[{convolution}, {pool}, flatten]]}}").cells
    assert "_layers-conv6x5.same.relu-pool3-flatten_" in cell_label(cell)


def test_cells_are_selected_by_their_layers(load):
    cells = load("{kind: layers, layers: [[flatten], [max_pool, flatten]]}").cells
    assert select_cells(cells, ["network.layers=pool2-flatten"]) == [cells[1]]
    with pytest.raises(ConfigError, match="must be one of flatten, pool2-flatten, got 'pool3'"):
        select_cells(cells, ["network.layers=pool3"])


# Work and groups


def test_few_weights_used_often_are_a_large_network(load):
    layers = "[{kind: convolution, filters: 1, size: 3}, {kind: max_pool, size: 13}, flatten]"
    (cell,) = load(f"{{kind: layers, layers: [{layers}]}}").cells
    assert cell.network.size((1, 28, 28), 10) == 10 + 50
    assert width(cell) == 1


def test_networks_are_groups_of_their_own(load):
    cells = load("[dense, report_conv, lenet5]").cells
    assert len({group_key(cell) for cell in cells}) == 3


# What is not valid


def layers(*listed):
    return f"{{kind: layers, layers: [[{', '.join(listed)}]]}}"


WIDE, CONVOLUTION = (
    "{kind: convolution, filters: 8, size: 29}",
    "{kind: convolution, filters: 8, size: 9}",
)
POOL = "{kind: max_pool, size: 14}"

MISTAKES = [
    (
        "{kind: layers, layers: [max_pool, flatten]}",
        "`sweeps[0].network.layers` must be a list of lists, because a list alone is an axis of "
        "the grid: write [['max_pool', 'flatten']], got ['max_pool', 'flatten'].",
    ),
    ("layers", "`sweeps[0].network.layers` is missing."),
    (
        layers("flatten", "dens"),
        "`sweeps[0].network.layers[0][1]` must be one of average_pool, convolution, dense, "
        "flatten, global_average_pool, max_pool, got 'dens'; did you mean `dense`?",
    ),
    (
        layers("flatten", "{kind: pool}"),
        "`sweeps[0].network.layers[0][1].kind` must be one of average_pool, convolution, "
        "dense, flatten, global_average_pool, max_pool, got 'pool'; did you mean `max_pool`?",
    ),
    (
        layers("{units: 3}"),
        "`sweeps[0].network.layers[0][0].kind` is missing. Choices: average_pool, "
        "convolution, dense, flatten, global_average_pool, max_pool.",
    ),
    (
        layers("flatten", "[flatten]"),
        "`sweeps[0].network.layers[0][1]` must be a name or a mapping, got ['flatten'].",
    ),
    (layers("7"), "`sweeps[0].network.layers[0][0]` must be a name or a mapping, got 7."),
    (layers("dense"), "`sweeps[0].network.layers[0][0].units` is missing."),
    (
        layers("flatten", "{kind: max_pool, size: [2, 0]}"),
        "`sweeps[0].network.layers[0][1].size[1]` must be >= 1, got 0.",
    ),
    (
        layers("{kind: convolution, filters: 2, size: 3, sizes: 2}"),
        "`sweeps[0].network.layers[0][0]` has no key `sizes`; did you mean `size`? Choices: "
        "activation, filters, kind, padding, size, stride.",
    ),
    (
        layers("flatten", "{kind: dense, units: 3, activation: rely}"),
        "`sweeps[0].network.layers[0][1].activation` must be one of linear, relu, sigmoid, tanh, "
        "got 'rely'; did you mean `relu`?",
    ),
    (
        layers("{kind: convolution, filters: 2, size: 4, padding: same}"),
        "`sweeps[0].network.layers[0][0]` must have an odd `size` with `padding` same, got 4.",
    ),
    (
        f"{{kind: layers, layers: [{['flatten'] * 101}]}}",
        "`sweeps[0].network.layers[0]` must have at most 100 entries, got [",
    ),
    (
        "{kind: layers, layers: [[flatten], [{kind: flatten}]]}",
        "`sweeps[0].network.layers[1]` repeats a choice that `sweeps[0].network.layers[0]` has "
        "made.",
    ),
    (
        layers(WIDE, "flatten"),
        "`sweeps[0].network.layers[0][0]` (convolution, 29 × 29) does not fit its input of "
        "1 × 28 × 28, on data set `sweeps[0].dataset`.",
    ),
    (
        f"[dense, {layers(POOL, CONVOLUTION)}]",
        "`sweeps[0].network[1].layers[0][1]` (convolution, 9 × 9) does not fit its input of "
        "1 × 2 × 2, on data set `sweeps[0].dataset`.",
    ),
    (
        layers("flatten", "max_pool"),
        "`sweeps[0].network.layers[0][1]` (max_pool, 2 × 2) takes images, not its input of "
        "784 features, on data set `sweeps[0].dataset`.",
    ),
    (
        layers("max_pool", "{kind: dense, units: 3}"),
        "`sweeps[0].network.layers[0][1]` (dense, 3 units) takes features, not its input of "
        "1 × 14 × 14: put `flatten` before it, on data set `sweeps[0].dataset`.",
    ),
    (
        layers("max_pool"),
        "`sweeps[0].network.layers[0]` must end with features, not with 1 × 14 × 14: put "
        "`flatten` last, on data set `sweeps[0].dataset`.",
    ),
]


@pytest.mark.parametrize(("network", "message"), MISTAKES)
def test_mistakes(load, network, message):
    with pytest.raises(ConfigError) as caught:
        load(network)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["report_conv", "lenet5"])
def test_names_on_points(load, kind):
    with pytest.raises(ConfigError) as caught:
        load(f"[dense, {kind}]", f"[{MNIST}, {MOONS}]")
    assert str(caught.value) == (
        f"`sweeps[0].network[1]` ({kind}): its layer 1 (convolution, 5 × 5) takes images, not "
        "its input of 2 features, on data set `sweeps[0].dataset[1]`."
    )
