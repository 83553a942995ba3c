"""Checks of each kind of part, with every registered counterpart."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pmbnn.core.spec import Specification
from pmbnn.data.base import DatasetSpec
from pmbnn.experiment.cells import REGISTRIES
from pmbnn.experiment.load import as_written, check_data, load_experiment, resolved_text
from pmbnn.experiment.yaml_file import yaml_text
from pmbnn.models.hyperpriors import HYPERPRIORS, Fixed, HalfNormal, Hierarchical, Hyperprior
from pmbnn.models.likelihoods import LIKELIHOODS, Categorical, Likelihood
from pmbnn.models.networks import Dense, Network
from pmbnn.models.prior_base import Prior
from pmbnn.models.priors import PRIORS, Normal
from pmbnn.testing.models import (
    N_ROWS,
    OFFSETS,
    assertion,
    check_model,
    evaluate,
    random_point,
    rows_of,
)

if TYPE_CHECKING:
    from pmbnn.data.arrays import Dataset


# Every specification: its class is registered, and a file gives it back


USUAL: dict[str, Any] = {
    "dataset": {"kind": "moons", "noise": 0.4},
    "network": "dense",
    "prior": "normal",
}
"""The other sections of the experiment file that a part is written into."""


def specification_of[S: Specification](part: S | type[S], base: type[S]) -> S:
    """The specification itself, or one with the defaults of a class."""
    spec = part() if isinstance(part, type) else part
    assert isinstance(spec, base), f"must be derived from {base.__name__}, got {part!r}"
    return spec


def check_specification(spec: Specification, section: str, **others: Any) -> None:
    """Raise AssertionError unless a specification is registered, hashable and read back.

    Parameters
    ----------
    section
        Section of an experiment file that the specification is written into and read back from.
    others
        Further sections of that file.
    """
    cls = type(spec)
    base = next(base for base in REGISTRIES if isinstance(spec, base))
    assert REGISTRIES[base].get(spec.kind) is cls, (
        f"`{cls.__name__}` must be registered as `{spec.kind}`: put `@pmbnn.register` above it"
    )
    again = cls.model_validate_json(spec.model_dump_json())
    assert again == spec, f"`{cls.__name__}` must equal what its JSON reads as, got {again!r}"
    with assertion(f"`{cls.__name__}` must be hashable"):
        same = hash(again) == hash(spec)
    assert same, f"`{cls.__name__}` must have equal hashes where it is equal"
    sweep = {"name": "check", **USUAL, **others, section: [as_written(spec)]}
    text = yaml_text({"name": "check", "sweeps": [sweep]})
    for _ in range(2):  # as it is written by hand, then as the results keep it
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "check.yaml"
            file.write_text(text, encoding="utf-8")
            experiment = load_experiment(file)
            check_data(experiment)
        read = {getattr(cell, section) for cell in experiment.cells}
        assert read == {spec}, f"an experiment file must give {spec!r} back, got {read}"
        text = resolved_text(experiment)


SMALL = Dense(hidden=(3,))

SCALES = (0.1, 3.0)
"""Scales that a prior's density is compared at, to the one of scale 1."""


def check_prior(prior: Prior | type[Prior]) -> None:
    """Raise AssertionError unless a prior keeps what `Prior` promises.

    It is registered and reads back from an experiment file; it makes models with every
    registered hyperprior and likelihood, with finite log-probability and gradient and as many
    free scalars as `n_free` says; and, where weights can be drawn around a scale, it is
    one: the density of scale · z is that of z over the scale.
    """
    prior = specification_of(prior, Prior)
    check_specification(prior, "prior")
    if prior.has_scale and prior.centrable:
        with assertion(f"`{prior.kind}` has no density"):
            _check_scale(prior)
    for hyperprior in _that_meet(prior):
        check_model(SMALL, prior, hyperprior, Categorical())
    fixed = Fixed() if prior.has_scale else Fixed(scale=None)
    for likelihood in _every(LIKELIHOODS):
        check_model(SMALL, prior, fixed, likelihood)


def check_hyperprior(hyperprior: Hyperprior | type[Hyperprior]) -> None:
    """Raise AssertionError unless a hyperprior keeps what `Hyperprior` promises.

    It is registered and reads back from an experiment file; it makes models with every
    registered prior that has a scale; its scales are positive and as many as `n_scales` says;
    its constants are data of the model, and no part of the structure.
    """
    hyperprior = specification_of(hyperprior, Hyperprior)
    check_specification(hyperprior, "hyperprior")
    shared = {name.removeprefix("hyperprior_") for name in hyperprior.constants}
    shared &= set(hyperprior.structure)
    assert not shared, f"`structure` must not hold the constants {sorted(shared)}"
    candidates = hyperprior.candidates
    assert candidates, f"`{hyperprior.kind}` must have at least itself among its `candidates`"
    for prior in _every(PRIORS):
        if prior.has_scale and (prior.centrable or not getattr(hyperprior, "centred", False)):
            for candidate in candidates:
                check_model(SMALL, prior, candidate, Categorical())


def check_likelihood(likelihood: Likelihood | type[Likelihood]) -> None:
    """Raise AssertionError unless a likelihood keeps what `Likelihood` promises.

    It is registered and reads back from an experiment file; it makes models with every
    registered prior; what it observes is called as asked, one density an observation.
    """
    likelihood = specification_of(likelihood, Likelihood)
    data = {"regression": {"kind": "sine"}, "classification": {"kind": "moons", "noise": 0.4}}
    check_specification(likelihood, "likelihood", dataset=data[likelihood.task])
    _check_observed(likelihood)
    for prior in _every(PRIORS):
        hyperprior = HalfNormal() if prior.has_scale else Fixed(scale=None)
        check_model(SMALL, prior, hyperprior, likelihood)


def check_network(
    network: Network | type[Network], input_shape: tuple[int, ...] = (2,), n_outputs: int = 3
) -> None:
    """Raise AssertionError unless a network keeps what `Network` promises.

    It is registered and reads back from an experiment file; it declares each parameter once; it
    makes models with scales for each unit; its outputs have shape ``(observation, output)``,
    and no observation has a say in the output of another.

    Parameters
    ----------
    input_shape
        Of one row, such as the network takes: ``(feature,)`` or ``(channel, row, column)``.
    n_outputs
        Outputs to declare parameters for.
    """
    network = specification_of(network, Network)
    with assertion(f"`{network.kind}` must take the shape {input_shape}"):
        parameters = network.parameters(input_shape, n_outputs)
    data = {"kind": "moons", "noise": 0.4} if len(input_shape) == 1 else "mnist"
    check_specification(network, "network", dataset=data)
    names = [p.name for p in parameters]
    assert len(set(names)) == len(names), f"parameters must have names of their own, got {names}"
    for p in parameters:
        assert len(p.dims) == len(p.shape), f"`{p.name}` must have a dim an axis, got {p.dims}"
    with assertion("`forward` cannot be evaluated"):
        _check_forward(network, input_shape, n_outputs)
    rows = rows_of(Categorical(), input_shape)
    for per in ("unit", "network"):
        # Small scales, by fan-in: outputs of a large network may make a probability zero.
        prior, hyperprior = Normal(fan_in=True), HalfNormal(per=per)
        check_model(network, prior, hyperprior, Categorical(), rows, OFFSETS[:1])


def check_dataset(dataset: DatasetSpec | type[DatasetSpec]) -> None:
    """Raise AssertionError unless a data set keeps what `DatasetSpec` promises.

    It is registered and reads back from an experiment file; it loads the same rows twice, as
    many and of such a shape as it declares, finite, with every label one of its classes.
    """
    spec = specification_of(dataset, DatasetSpec)
    check_specification(spec, "dataset")
    loaded = spec.load()
    first, second = loaded.fingerprint, spec.load().fingerprint
    assert first == second, f"`{spec.kind}` must load the same rows each time"
    if spec.rows is not None:
        rows = len(loaded.y_train), len(loaded.y_test)
        assert rows == spec.rows, f"`rows` must be what is loaded, {rows}, got {spec.rows}"
    shape = loaded.input_shape
    assert shape == spec.input_shape, f"`input_shape` must be {shape}, got {spec.input_shape}"
    classes = len(loaded.classes) or None
    assert classes == spec.n_classes, f"`n_classes` must be {classes}, got {spec.n_classes}"
    _check_arrays(loaded)


def _every[S: Specification](registry: dict[str, type[S]]) -> list[S]:
    """A specification of each class whose fields all have a default."""
    return [
        cls()
        for cls in registry.values()
        if not any(field.is_required() for field in cls.model_fields.values())
    ]


def _that_meet(prior: Prior) -> list[Hyperprior]:
    """Hyperpriors that a prior takes, centred ones too where it can be."""
    if not prior.has_scale:
        return [Fixed(scale=None)]
    hyperpriors = _every(HYPERPRIORS)
    if prior.centrable:
        learned = [h for h in hyperpriors if isinstance(h, Hierarchical)]
        hyperpriors += [type(h)(centred=True) for h in learned]
    return hyperpriors


def _check_scale(prior: Prior) -> None:
    """Raise AssertionError unless log p(scale · z | scale) + log scale is equal at all scales."""
    import pymc as pm

    z = np.random.default_rng(2).normal(size=5)
    densities = {}
    for scale in (1.0, *SCALES):
        with pm.Model(coords={"unit": range(len(z))}) as model:
            weight = prior.variable("w", np.float64(scale), ("unit",), prior.shared())
            assert weight.name == "w", f"`variable` must name its variable `w`, got `{weight.name}`"
        # What weights share is random: their density is taken at one point of it.
        logp = model.replace_rvs_by_values([pm.logp(weight, scale * z, warn_rvs=False)])
        point = random_point(model)
        [density] = evaluate(logp, {v: point[v.name] for v in model.value_vars})
        densities[scale] = density + np.log(scale)
    for scale in SCALES:
        assert np.allclose(densities[scale], densities[1.0], rtol=1e-8, atol=1e-8), (
            f"`{prior.kind}` must have the density of its standard draws over the scale {scale}: "
            f"log-densities of z {densities[1.0]}, of scale · z plus log scale {densities[scale]}"
        )


def _check_observed(likelihood: Likelihood) -> None:
    """Raise AssertionError unless each observation has its own log-density."""
    from pmbnn.models.build import build_model

    model = build_model(SMALL, Normal(), Fixed(), likelihood, rows_of(likelihood))
    names = [v.name for v in model.observed_RVs]
    assert names == ["y"], f"`observe` must name one observed variable `y`, got {names}"
    dims = tuple(model.named_vars_to_dims.get("y", ()))
    assert dims == ("observation",), f"`y` must have dims ('observation',), got {dims}"
    point = random_point(model)
    logp = model.logp(vars=model.observed_RVs, sum=False)
    [density] = evaluate(logp, {v: point[v.name] for v in model.value_vars})
    shape = np.shape(density)
    assert shape == (N_ROWS,), f"`y` must have a log-density an observation, got shape {shape}"


def _check_forward(network: Network, input_shape: tuple[int, ...], n_outputs: int) -> None:
    """Raise AssertionError unless outputs have their shape and depend on their own rows alone."""
    import pytensor.tensor as pt

    rng = np.random.default_rng(3)
    x = pt.matrix("x", dtype="float64")
    parameters = network.parameters(input_shape, n_outputs)
    values = {p.name: pt.as_tensor(rng.normal(size=p.shape) / p.fan_in) for p in parameters}
    outputs = network.forward(x, values, input_shape)
    gradients = pt.grad(pt.sum(outputs**2), list(values.values()), disconnected_inputs="ignore")
    rows = rng.normal(size=(4, int(np.prod(input_shape))))
    values_at_rows, *slopes = evaluate([outputs, *gradients], {x: rows})
    for name, slope in zip(values, slopes, strict=True):
        assert np.any(slope != 0), f"`forward` must make use of `{name}`"
    expected = (len(rows), n_outputs)
    shape = values_at_rows.shape
    assert shape == expected, f"`forward` must give shape {expected}, got {shape}"
    [fewer] = evaluate([outputs], {x: rows[1:3]})
    assert np.allclose(fewer, values_at_rows[1:3]), (
        "an output of `forward` must depend on its row alone"
    )


def _check_arrays(loaded: "Dataset") -> None:
    """Raise AssertionError unless all rows are finite, and labels are of classes."""
    for part in ("train", "test"):
        x, y = getattr(loaded, f"x_{part}"), getattr(loaded, f"y_{part}")
        assert x.shape == (len(y), len(loaded.features)), (
            f"`x_{part}` must have shape {(len(y), len(loaded.features))}, got {x.shape}"
        )
        assert np.isfinite(x).all(), f"`x_{part}` must be finite"
        assert np.isfinite(y).all(), f"`y_{part}` must be finite"
        if loaded.classes:
            last = len(loaded.classes) - 1
            is_label = y.dtype.kind in "iu" and y.min() >= 0 and y.max() <= last
            assert is_label, f"`y_{part}` must hold class indices from 0 to {last}"
