"""Settings of an experiment file that are valid on their own and do not fit together.

The first mistake is raised as a `ConfigError`.
"""

from collections.abc import Mapping
from itertools import product

from pmbnn.core.errors import ConfigError, must
from pmbnn.core.spec import Tune
from pmbnn.data.base import SIDE, DataError, DataSettingError
from pmbnn.experiment.axes import Choice
from pmbnn.experiment.cells import choosing_rows
from pmbnn.experiment.cost import LARGE_NETWORK
from pmbnn.inference.settings import (
    ESTIMATORS,
    LARGEST_FULL_RANK,
    LARGEST_LAPLACE,
    ONE_BY_ONE_GUIDES,
    ONE_POSITION_ESTIMATORS,
    Inference,
)
from pmbnn.models.hyperpriors import Fixed, Hyperprior
from pmbnn.models.layers import units_of_layers
from pmbnn.models.likelihoods import LIKELIHOODS, Likelihood, NumberLikelihood
from pmbnn.models.matching import why_not_scaled
from pmbnn.models.networks import Parameter, ShapeError
from pmbnn.models.prior_base import Prior
from pmbnn.models.pymc_distributions import PyMCDistribution
from pmbnn.models.quantiles import why_no_quantiles
from pmbnn.models.smooth import why_not_smooth

type Choices = Mapping[str, list[Choice]]
"""Choices of every section, by its name."""

type Pairs = list[tuple[Choice, Choice]]
"""Priors, each with a hyperprior that it meets."""


def check_data(datasets: list[Choice]) -> None:
    """Raise DataError where the user's data are unavailable, or not as they must be.

    The message names the place in the file.
    """
    for dataset in datasets:
        try:
            dataset.spec.check()
        except DataSettingError as error:
            section, _, field = error.setting.partition(".")
            place = dataset.place_of(section) + (f".{field}" if field else "")
            raise DataError(f"`{place}` {error.rule}.") from error
        except DataError as error:
            raise DataError(f"`{dataset.place}`: {error}") from error


def check_sections(choices: Choices, pairs: Pairs) -> None:
    """Raise ConfigError where sections of a sweep do not fit each other."""
    fitted = [choice for choice in choices["inference"] if isinstance(choice.spec, Inference)]
    _check_choosing(choices["inference"], pairs)
    _check_improper(fitted, pairs)
    _check_batches(choices["dataset"], fitted)
    _check_shapes(choices["dataset"], choices["network"])
    _check_cells(choices["network"], pairs)
    _check_scales(choices["dataset"], choices["network"], pairs)
    _check_likelihoods(choices["dataset"], choices["likelihood"])
    _check_points(choices)
    _check_quantiles(choices)
    _check_bounded(choices)
    _check_laplace(choices, fitted, pairs)
    _check_guides(choices, fitted, pairs)
    _check_stacking(choices, fitted)
    _check_ood(choices["dataset"], choices["predict"])
    _check_diagnostics(choices)


def _check_choosing(inferences: list[Choice], pairs: Pairs) -> None:
    """A scale is tuned by rows that are held out, or by Laplace's evidence."""
    for inference, (_, hyperprior) in product(inferences, pairs):
        validation, spec = inference.spec.validation, hyperprior.spec
        if validation > 0 or getattr(inference.spec, "guide", None) == "laplace":
            continue
        if isinstance(spec, Fixed) and isinstance(spec.scale, Tune):
            rule = f"must be > 0 to tune `{hyperprior.place_of('scale')}` by held-out rows"
            rule += " (with guide laplace, 0 tunes it by the evidence)"
            raise must(inference.place_of("validation"), rule, validation)


def _check_improper(inferences: list[Choice], pairs: Pairs) -> None:
    """The ELBO under an improper prior has no maximum, and chooses nothing."""
    for inference, (prior, _) in product(inferences, pairs):
        if prior.spec.is_proper or not inference.spec.has_entropy:
            continue
        improper = f"with prior `{prior.spec.kind}` (`{prior.place}`), whose"
        if isinstance(inference.spec.learning_rate, Tune):
            rule = f"must be a number {improper} ELBO has no maximum to choose it by"
            raise must(inference.place_of("learning_rate"), rule, "tune")
        if inference.spec.validation == 0 and inference.spec.restarts > 1:
            rule = f"must be > 0 {improper} restarts are chosen by validation NLL"
            raise must(inference.place_of("validation"), rule, inference.spec.validation)


def _check_points(choices: Choices) -> None:
    """Point parameters are maximised, which few fits do."""
    sections = [*choices["hyperprior"], *choices["likelihood"]]
    points = [choice for choice in sections if choice.spec.is_point]
    for point, inference in product(points, choices["inference"]):
        reason = f"with point parameters (`{point.place}`)"
        engine = inference.spec.engine
        if engine != "compiled":
            rule = f"must be compiled {reason}, which are maximised"
            raise must(inference.place_of("engine"), rule, engine)
        if inference.spec.guide not in ONE_BY_ONE_GUIDES:
            rule = f"must be {_any_of(ONE_BY_ONE_GUIDES)} {reason}"
            raise must(inference.place_of("guide"), rule, inference.spec.guide)


def _check_laplace(choices: Choices, inferences: list[Choice], pairs: Pairs) -> None:
    """A Laplace approximation is of a posterior that has a sensible mode."""
    if not any(inference.spec.guide == "laplace" for inference in inferences):
        return
    for (prior, hyperprior), likelihood in product(pairs, choices["likelihood"]):
        sections = {"prior": prior, "hyperprior": hyperprior, "likelihood": likelihood}
        fault = why_not_smooth(*(choice.spec for choice in sections.values()))
        if fault is not None:
            section, rule, kind = fault
            raise must(sections[section].place, rule, kind)


def _check_quantiles(choices: Choices) -> None:
    """Samplers from prior to posterior take free variables with quantile functions only."""
    engines = [choice for choice in choices["inference"] if choice.spec.needs_quantiles]
    sections = ("prior", "hyperprior", "likelihood")
    parts = [part for section in sections for part in choices[section]]
    for inference, part in product(engines, parts):
        fault = why_no_quantiles(part.spec)
        if fault is not None:
            field, rule, value = fault
            where, engine = inference.place_of("engine"), inference.spec.engine
            place = part.place if field == "kind" else part.place_of(field)
            reason = "which needs quantile functions that JAX computes"
            raise must(place, f"{rule} with engine {engine} (`{where}`), {reason}", value)


def _check_bounded(choices: Choices) -> None:
    """Temperatures, and dropout, take weights whose variables are on the whole line."""
    priors = [choice for choice in choices["prior"] if not choice.spec.is_on_line]
    for prior, inference in product(priors, choices["inference"]):
        which, spec = f"with prior `{prior.spec.kind}` (`{prior.place}`)", inference.spec
        if getattr(spec, "temperature", 1.0) != 1:
            rule = f"must be 1 {which}, some of whose variables are positive or in an interval"
            raise must(inference.place_of("temperature"), rule, spec.temperature)
        # Dropout takes positive scales, not such weights.
        if getattr(spec, "guide", None) == "dropout" and isinstance(prior.spec, PyMCDistribution):
            rule = f"must not be dropout {which}, whose weights are positive or in an interval"
            raise must(inference.place_of("guide"), rule, "dropout")


def _check_batches(datasets: list[Choice], inferences: list[Choice]) -> None:
    """A batch is no larger than the rows of the smallest fit."""
    for dataset, inference in product(datasets, inferences):
        rows, batch = dataset.spec.rows, inference.spec.batch
        if rows is None or batch is None:
            continue
        most = choosing_rows(rows[0], inference.spec.validation)
        if batch > most:
            rule = f"must be <= {most}, the rows of `{dataset.place}` not held out for validation"
            raise must(inference.place_of("batch"), rule, batch)


def _check_shapes(datasets: list[Choice], networks: list[Choice]) -> None:
    """Layers of a network fit the inputs of a data set."""
    # Data sets that differ in seed or noise have one shape.
    distinct = {d.spec.input_shape: d for d in reversed(datasets)}
    for (shape, dataset), network in product(distinct.items(), networks):
        try:
            # Any number of outputs will do: features in, and so many linear units.
            network.spec.parameters(shape, 1)
        except ShapeError as error:
            place = network.place_of(error.field) if error.field else network.place
            raise ConfigError(f"{error.at(place)}, on data set `{dataset.place}`.") from None


def _check_scales(datasets: list[Choice], networks: list[Choice], pairs: Pairs) -> None:
    """A list of scales has one for each layer; scales are matched where that can be done."""
    shapes = dict.fromkeys(dataset.spec.input_shape for dataset in datasets)
    for shape, network, (prior, hyperprior) in product(shapes, networks, pairs):
        rule = why_not_scaled(hyperprior.spec, prior.spec, network.spec, shape)
        if rule is not None:
            place = hyperprior.place_of("scale")
            raise ConfigError(f"`{place}` {rule} (`{network.place}`).")


def _check_cells(networks: list[Choice], pairs: Pairs) -> None:
    """A stored cell that is a prior is of the same network."""
    for network, (prior, _) in product(networks, pairs):
        if (rule := prior.spec.why_not_of(network.spec)) is not None:
            raise ConfigError(f"`{prior.place}` {rule} (`{network.place}`).")


def _check_guides(choices: Choices, inferences: list[Choice], pairs: Pairs) -> None:
    """A guide and its estimator can take a network."""
    sections = (choices[name] for name in ("dataset", "network", "likelihood"))
    for dataset, network, likelihood in product(*sections):
        n_targets = dataset.spec.n_targets
        n_outputs = likelihood.spec.n_outputs(dataset.spec.n_classes, n_targets)
        parameters = network.spec.parameters(dataset.spec.input_shape, n_outputs)
        shared = next((p for p in parameters if p.positions > 1), None)
        for inference in inferences:
            # Their noise is of single units, and such weights are shared by many.
            if shared is not None and inference.spec.estimator in ONE_POSITION_ESTIMATORS:
                rule = (
                    f"must be {_any_of(sorted(set(ESTIMATORS) - set(ONE_POSITION_ESTIMATORS)))} "
                    f"with network `{network.spec.kind}` (`{network.place}`), whose "
                    f"`{shared.name}` is used at {shared.positions} places of an observation"
                )
                raise must(inference.place_of("estimator"), rule, inference.spec.estimator)
            if shared is not None and inference.spec.guide == "dropout":
                rule = (
                    f"must not be dropout with network `{network.spec.kind}` (`{network.place}`), "
                    f"whose `{shared.name}` is used at {shared.positions} places of an observation"
                )
                raise must(inference.place_of("guide"), rule, "dropout")
        for inference, (prior, hyperprior) in product(inferences, pairs):
            guide = inference.spec.guide
            if guide not in ("full_rank", "laplace"):
                continue
            specs = prior.spec, hyperprior.spec, likelihood.spec
            size = free_scalars(parameters, *specs, n_targets)
            if guide == "laplace" and size > LARGEST_LAPLACE:
                rule = (
                    f"must not be laplace with the {size:,} weights of `{network.place}`: it takes "
                    f"at most {LARGEST_LAPLACE:,}"
                )
                raise must(inference.place_of("guide"), rule, guide)
            if guide == "full_rank" and size > LARGEST_FULL_RANK:
                rule = (
                    f"must not be full_rank with the {size:,} free variables of "
                    f"`{network.place}` with prior `{prior.spec.kind}` and hyperprior "
                    f"`{hyperprior.spec.kind}`: it takes at most {LARGEST_FULL_RANK:,}, "
                    "`low_rank` any number"
                )
                raise must(inference.place_of("guide"), rule, inference.spec.guide)


def free_scalars(
    parameters: tuple[Parameter, ...],
    prior: Prior,
    hyperprior: Hyperprior,
    likelihood: Likelihood,
    n_targets: int = 1,
) -> int:
    """Number of free scalars of a model: weights, their scales, and those of the likelihood."""
    of_prior = prior.n_free(sum(p.size for p in parameters)) + prior.n_of_layers(parameters)
    return (
        of_prior + hyperprior.n_scales(units_of_layers(parameters)) + n_targets * likelihood.n_free
    )


def _check_stacking(choices: Choices, inferences: list[Choice]) -> None:
    """Stacked restarts have draws, and few enough weights to score every training row."""
    stacked = [choice for choice in choices["predict"] if choice.spec.mixture == "stacked"]
    for predict, inference in product(stacked, inferences):
        if inference.spec.is_point:
            place = inference.place_of("guide")
            rule = f"must not be stacked with guide {inference.spec.guide} (`{place}`), a point"
            raise must(predict.place_of("mixture"), rule, "stacked")
    sections = (choices[name] for name in ("dataset", "network", "likelihood"))
    for predict, dataset, network, likelihood in product(stacked, *sections):
        n_outputs = likelihood.spec.n_outputs(dataset.spec.n_classes, dataset.spec.n_targets)
        size = network.spec.multiply_adds(dataset.spec.input_shape, n_outputs)
        if size > LARGE_NETWORK:
            rule = (
                f"must be best, elbo or equal with `{network.place}`: restarts are stacked by "
                f"their draws at every training row, of networks up to {LARGE_NETWORK:,} "
                f"multiply-adds a row, and it has {size:,}"
            )
            raise must(predict.place_of("mixture"), rule, "stacked")


def _check_ood(datasets: list[Choice], predicts: list[Choice]) -> None:
    """Out-of-distribution images are all in the format of the digits."""
    for dataset, predict in product(datasets, predicts):
        if predict.spec.ood and dataset.spec.input_shape != (1, SIDE, SIDE):
            rule = (
                f"must be empty with data set `{dataset.spec.kind}` (`{dataset.place}`), whose "
                f"rows are not images of {SIDE} × {SIDE} pixels"
            )
            names = [spec.name for spec in predict.spec.ood]
            raise must(predict.place_of("ood"), rule, names)


def _check_likelihoods(datasets: list[Choice], likelihoods: list[Choice]) -> None:
    """A likelihood observes the targets, and noise that is given is of as many."""
    for dataset, likelihood in product(datasets, likelihoods):
        n_classes, n_targets = dataset.spec.n_classes, dataset.spec.n_targets
        spec = likelihood.spec
        if spec.observes(n_classes, n_targets):
            if isinstance(spec, NumberLikelihood) and (rule := spec.rule_of_known(n_targets)):
                raise must(likelihood.place_of(spec.scale_field), rule, [*spec.scale_of_noise])
            continue
        numbers = "numbers" if n_targets == 1 else f"{n_targets} numbers a row"
        targets = numbers if n_classes is None else f"{n_classes} classes"
        fitting = [k for k, cls in LIKELIHOODS.items() if cls.observes(n_classes, n_targets)]
        rule = (
            f"must be {' or '.join(sorted(fitting))} with data set `{dataset.spec.kind}` "
            f"(`{dataset.place}`), whose targets are {targets}"
        )
        raise must(likelihood.place, rule, spec.kind)


def _check_diagnostics(choices: Choices) -> None:
    """Snapshots are of compiled fits of classifiers."""
    snapshots = [choice for choice in choices["predict"] if choice.spec.diagnostics.steps]
    for dataset, inference, predict in product(choices["dataset"], choices["inference"], snapshots):
        place = f"{predict.place_of('diagnostics')}.steps"
        steps, engine = list(predict.spec.diagnostics.steps), inference.spec.engine
        if engine != "compiled":
            where = inference.place_of("engine")
            rule = f"must be empty with engine {engine} (`{where}`), which keeps nothing on its way"
            raise must(place, rule, steps)
        if getattr(inference.spec, "guide", None) == "laplace":
            where = inference.place_of("guide")
            rule = f"must be empty with guide laplace (`{where}`), which is nothing before its mode"
            raise must(place, rule, steps)
        if dataset.spec.task_of_rows != "classification":
            rule = (
                f"must be empty with data set `{dataset.spec.kind}` (`{dataset.place}`): "
                "snapshots are of classifiers only"
            )
            raise must(place, rule, steps)


def _any_of(names: "list[str] | tuple[str, ...]") -> str:
    """Names with commas between, ``or`` before the last."""
    return f"{', '.join(names[:-1])} or {names[-1]}"
