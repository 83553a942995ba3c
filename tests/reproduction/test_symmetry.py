"""What symmetries of a network explain of a guide's ELBO gap, by enumeration and by limits."""

import json
from itertools import permutations, product
from math import factorial, log

import numpy as np
import pytest
import xarray as xr
from scipy.special import logsumexp
from scipy.stats import norm
from study.symmetry import Layer, symmetry_bound, symmetry_gap, symmetry_table

RNG = np.random.default_rng(0)


def layers(sizes, mean, sd):
    """Guide of a dense network with these sizes: random means of size `mean`, scales about `sd`."""
    shapes = list(zip(sizes, sizes[1:], strict=False))
    centre = [
        Layer(mean * RNG.standard_normal((i, o)), mean * RNG.standard_normal(o)) for i, o in shapes
    ]
    scale = [
        Layer(*(sd * np.exp(0.3 * RNG.standard_normal(a.shape)) for a in layer)) for layer in centre
    ]
    return centre, scale


def moved(drawn, orders, signs):
    """The same function with hidden units in another order and with other signs."""
    found, order, sign = [], np.arange(len(drawn[0].weight)), np.ones(len(drawn[0].weight))
    last = np.arange(len(drawn[-1].bias)), np.ones(len(drawn[-1].bias))
    for layer, (new, turned) in zip(drawn, [*zip(orders, signs, strict=True), last], strict=True):
        weight = sign[:, None] * layer.weight[order][:, new] * turned
        found.append(Layer(weight, turned * layer.bias[new]))
        order, sign = new, turned
    return found


def log_q(drawn, mean, scale):
    return sum(
        norm.logpdf(d, m, s).sum()
        for of in zip(drawn, mean, scale, strict=True)
        for d, m, s in zip(*of, strict=True)
    )


def by_enumeration(mean, scale, signs, draws, seed):
    """The same expectation by moving each draw to every place."""
    hidden = [len(layer.bias) for layer in mean[:-1]]
    turns = [list(product((1.0, -1.0) if signs else (1.0,), repeat=n)) for n in hidden]
    orders = [list(permutations(range(n))) for n in hidden]
    rng, found = np.random.default_rng(seed), []
    for _ in range(draws):
        drawn = [
            Layer(*(m + s * rng.standard_normal(m.shape) for m, s in zip(*of, strict=True)))
            for of in zip(mean, scale, strict=True)
        ]
        every = [
            log_q(
                moved(drawn, [np.array(o) for o in order], [np.array(t) for t in turn]), mean, scale
            )
            for order in product(*orders)
            for turn in product(*turns)
        ]
        found.append(log_q(drawn, mean, scale) - logsumexp(every) + log(len(every)))
    return np.mean(found)


@pytest.mark.parametrize("sizes", [(2, 3, 1), (2, 3, 2, 2), (1, 2, 3, 1)])
@pytest.mark.parametrize("signs", [True, False])
def test_as_by_enumeration(sizes, signs):
    mean, scale = layers(sizes, 0.6, 0.7)
    found, _ = symmetry_gap(mean, scale, signs, draws=3, random_seed=5)
    assert found == pytest.approx(by_enumeration(mean, scale, signs, 3, 5), rel=1e-9)
    assert 0.05 < found < symmetry_bound(sizes[1:-1], signs)


def test_a_moved_network_is_the_same_function():
    (drawn, _), x = layers((2, 3, 2, 2), 1.0, 1.0), RNG.standard_normal((7, 2))

    def outputs(net):
        h = x
        for layer in net[:-1]:
            h = np.tanh(h @ layer.weight + layer.bias)
        return h @ net[-1].weight + net[-1].bias

    other = moved(
        drawn,
        [np.array([2, 0, 1]), np.array([1, 0])],
        [np.array([1.0, -1, -1]), np.array([-1.0, 1])],
    )
    np.testing.assert_allclose(outputs(other), outputs(drawn), rtol=1e-12)


def test_bound_of_a_5_5_tanh_network():
    assert symmetry_bound((5, 5), True) == pytest.approx(log(factorial(5) ** 2 * 2**10))
    assert symmetry_bound((5, 5), True) == pytest.approx(16.5, abs=0.05)


def test_modes_far_apart_explain_the_whole_bound():
    mean, scale = layers((2, 3, 3, 2), 5.0, 0.01)
    found, error = symmetry_gap(mean, scale, True, draws=4, random_seed=0)
    assert found == pytest.approx(symmetry_bound((3, 3), True), abs=1e-6)
    assert error < 1e-6


def test_a_symmetric_guide_explains_nothing():
    centre, _ = layers((2, 3, 3, 2), 0.0, 1.0)
    scale = [Layer(*(np.ones_like(a) for a in layer)) for layer in centre]
    found, _ = symmetry_gap(centre, scale, True, draws=4, random_seed=0)
    assert found == pytest.approx(0, abs=1e-9)


def test_other_networks_are_refused():
    with pytest.raises(ValueError, match=r"at most 6 units, got \[7\]"):
        symmetry_gap(*layers((2, 7, 1), 1.0, 1.0), True, 1, 0)
    with pytest.raises(ValueError, match=r"got \[2, 2, 2\]"):
        symmetry_gap(*layers((2, 2, 2, 2, 1), 1.0, 1.0), True, 1, 0)


@pytest.fixture
def row(made, tmp_path, results_of):
    """Row of a fit with two hidden units, beside a cell of a sampler."""

    def row(engine="smc", guide="mean_field", **numbers):
        network = {"kind": "dense", "hidden": [2], "activation": "tanh"}
        fitting = {"engine": "compiled", "guide": guide, "kl_weight": 1.0, "kl_scaling": "sum"}
        cells = []
        for name, inference, found in (
            ("fit", fitting, {"elbo": -262.0}),
            ("sampled", {"engine": engine, "chains": 2}, numbers),
        ):
            one = made.record(network=network, **found)
            settings = one.settings | {"inference": inference}
            cells.append((made.changed(one, name=name, settings=settings), guide_trace()))
        store = made.store(tmp_path / f"{engine}-{guide}", cells)
        table = symmetry_table(results_of(store, [record for record, _ in cells]))
        return next(iter(table.to_dict("records")), None)

    return row


def guide_trace():
    """A guide of two hidden units that lie far apart."""
    shapes = {"weight_1": [1, 2], "bias_1": [2], "weight_2": [2, 1], "bias_2": [1]}
    slots = [[n, at, shape] for at, (n, shape) in zip((0, 2, 4, 6), shapes.items(), strict=True)]
    guide = {"loc": [3.0, 0.1, 3.0, 0.1, 2.0, 0.0, 0.5], "scale": [0.01] * 7}
    arrays = {name: (("restart", "parameter"), np.array([of])) for name, of in guide.items()}
    return xr.DataTree.from_dict(
        {
            "/fit": xr.Dataset(attrs={"best": 0}),
            "/guide": xr.Dataset(arrays, {"restart": [0]}, {"slots": json.dumps(slots)}),
        }
    )


def test_a_row_for_a_fit_whose_evidence_is_known(row):
    found = row(log_evidence=-250.0, log_evidence_mcse=0.1)
    assert (found["name"], found["reference"], found["guide"]) == ("fit", "sampled", "mean_field")
    assert (found["kl_gap"], found["kl_gap_mcse"]) == (12.0, 0.1)
    # Two units that may change places and turn their signs.
    assert found["symmetry_bound"] == pytest.approx(np.log(8))
    assert found["symmetry_gap"] == pytest.approx(np.log(8), abs=1e-3)
    assert row("mclmc") is None


def test_of_another_guide_the_bound_alone_is_known(row):
    found = row(guide="full_rank", log_evidence=-250.0, log_evidence_mcse=0.1)
    assert found["symmetry_bound"] == pytest.approx(np.log(8))
    assert "symmetry_gap" not in found
