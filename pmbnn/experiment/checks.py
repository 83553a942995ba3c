"""Settings of an experiment file that are right on their own and wrong together.

Each check takes the choices of some sections and raises the first mistake as a `ConfigError`.
"""

from collections.abc import Mapping
from itertools import product

from pmbnn.data.base import SIDE, DataError, DataSettingError
from pmbnn.experiment.axes import Choice
from pmbnn.experiment.cells import choosing_rows
from pmbnn.experiment.cost import LARGE_NETWORK
from pmbnn.inference.settings import (
    ESTIMATORS,
    LARGEST_FULL_RANK,
    ONE_BY_ONE_GUIDES,
    ONE_POSITION_ESTIMATORS,
)
from pmbnn.models.likelihoods import LIKELIHOODS, Likelihood, NumberLikelihood
from pmbnn.models.networks import Parameter, ShapeError
from pmbnn.models.priors import Fixed, Hyperprior, Prior, Tune
from pmbnn.spec.errors import ConfigError, must


def check_data(datasets: list[Choice]) -> None:
    """Raise DataError where data of one's own are unavailable, or not as they must be.

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


def check_choosing(pairs: list[tuple[Choice, Choice]], inferences: list[Choice]) -> None:
    """Raise ConfigError where a scale is to be tuned with no rows held out for it."""
    for inference, (_, hyperprior) in product(inferences, pairs):
        validation, spec = inference.spec.validation, hyperprior.spec
        if validation == 0 and isinstance(spec, Fixed) and isinstance(spec.scale, Tune):
            rule = f"must be > 0 to tune `{hyperprior.place_of('scale')}`"
            raise must(inference.place_of("validation"), rule, validation)


def check_improper(pairs: list[tuple[Choice, Choice]], inferences: list[Choice]) -> None:
    """Raise ConfigError where an ELBO that has no maximum is to choose something.

    Parameters
    ----------
    inferences
        Those that fit guides.
    """
    for inference, (prior, _) in product(inferences, pairs):
        if prior.spec.has_scale or inference.spec.is_point:
            continue
        if isinstance(inference.spec.learning_rate, Tune):
            rule = (
                f"must be a number with prior `{prior.spec.kind}` (`{prior.place}`), whose ELBO "
                "has no maximum to choose it by"
            )
            raise must(inference.place_of("learning_rate"), rule, "tune")
        if inference.spec.validation == 0 and inference.spec.restarts > 1:
            rule = (
                f"must be > 0 with prior `{prior.spec.kind}` (`{prior.place}`), whose restarts "
                "are chosen by validation NLL"
            )
            raise must(inference.place_of("validation"), rule, inference.spec.validation)


def check_points(choices: Mapping[str, list[Choice]]) -> None:
    """Raise ConfigError where point parameters meet what does not maximise them.

    Parameters
    ----------
    choices
        Of every section, by its name.
    """
    listed = [*choices["hyperprior"], *choices["likelihood"]]
    for having, inference in product((c for c in listed if c.spec.is_point), choices["inference"]):
        words = f"with point parameters (`{having.place}`)"
        engine = inference.spec.engine
        if engine != "compiled":
            place = inference.place_of("engine")
            raise must(place, f"must be compiled {words}, which are maximised", engine)
        if inference.spec.guide not in ONE_BY_ONE_GUIDES:
            rule = f"must be {', '.join(ONE_BY_ONE_GUIDES[:-1])} or {ONE_BY_ONE_GUIDES[-1]} {words}"
            raise must(inference.place_of("guide"), rule, inference.spec.guide)


def check_batches(datasets: list[Choice], inferences: list[Choice]) -> None:
    """Raise ConfigError where a batch is larger than the rows of the smallest fit."""
    for dataset, inference in product(datasets, inferences):
        rows, batch = dataset.spec.rows, inference.spec.batch
        if rows is None or batch is None:
            continue
        most = choosing_rows(rows[0], inference.spec.validation)
        if batch > most:
            rule = f"must be <= {most}, the rows of `{dataset.place}` not held out for validation"
            raise must(inference.place_of("batch"), rule, batch)


def check_shapes(datasets: list[Choice], networks: list[Choice]) -> None:
    """Raise ConfigError where a layer of a network does not fit a data set."""
    # Data sets that differ in seed or noise need no look of their own.
    distinct = {d.spec.input_shape: d for d in reversed(datasets)}
    for (shape, dataset), network in product(distinct.items(), networks):
        try:
            # Any number of outputs will do: features in, and so many linear units.
            network.spec.parameters(shape, 1)
        except ShapeError as error:
            place = network.place_of(error.field) if error.field else network.place
            raise ConfigError(f"{error.at(place)}, on data set `{dataset.place}`.") from None


def check_guides(
    choices: Mapping[str, list[Choice]],
    inferences: list[Choice],
    pairs: list[tuple[Choice, Choice]],
) -> None:
    """Raise ConfigError where a guide or its estimator cannot take a network.

    Parameters
    ----------
    choices
        Of every section, by its name.
    inferences
        Those that fit guides.
    pairs
        Priors and the hyperpriors that they meet.
    """
    sections = (choices[name] for name in ("dataset", "network", "likelihood"))
    for dataset, network, likelihood in product(*sections):
        n_outputs = likelihood.spec.n_outputs(dataset.spec.n_classes, dataset.spec.n_targets)
        parameters = network.spec.parameters(dataset.spec.input_shape, n_outputs)
        for inference in inferences:
            _check_estimator(parameters, network, inference)
        for inference, pair in product(inferences, pairs):
            n_targets = dataset.spec.n_targets
            _check_full_rank(parameters, network, inference, pair, likelihood, n_targets)


def _check_full_rank(
    parameters: tuple[Parameter, ...],
    network: Choice,
    inference: Choice,
    pair: tuple[Choice, Choice],
    likelihood: Choice,
    n_targets: int,
) -> None:
    """Raise ConfigError where a model is too large for a guide with a full covariance."""
    if inference.spec.guide != "full_rank":
        return
    size = free_scalars(parameters, *(choice.spec for choice in pair), likelihood.spec, n_targets)
    if size > LARGEST_FULL_RANK:
        prior, hyperprior = pair
        rule = (
            f"must not be full_rank with the {size:,} free variables of `{network.place}` with "
            f"prior `{prior.spec.kind}` and hyperprior `{hyperprior.spec.kind}`: it takes at most "
            f"{LARGEST_FULL_RANK:,}, `low_rank` any number"
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
    units = {p.layer: p.shape[-1] for p in parameters}
    weights = prior.n_free(sum(p.size for p in parameters))
    return weights + hyperprior.n_scales(list(units.values())) + n_targets * likelihood.n_free


def _check_estimator(parameters: tuple[Parameter, ...], network: Choice, inference: Choice) -> None:
    """Raise ConfigError where noise of single units meets weights that many of them share."""
    estimator = inference.spec.estimator
    if estimator not in ONE_POSITION_ESTIMATORS:
        return
    shared = next((p for p in parameters if p.positions > 1), None)
    if shared is not None:
        fitting = sorted(set(ESTIMATORS) - set(ONE_POSITION_ESTIMATORS))
        rule = (
            f"must be {', '.join(fitting[:-1])} or {fitting[-1]} with network "
            f"`{network.spec.kind}` (`{network.place}`), whose `{shared.name}` is used at "
            f"{shared.positions} places of an observation"
        )
        raise must(inference.place_of("estimator"), rule, estimator)


def check_stacking(choices: Mapping[str, list[Choice]], inferences: list[Choice]) -> None:
    """Raise ConfigError where restarts are stacked that have no draws, or too many to score.

    Parameters
    ----------
    choices
        Of every section, by its name.
    inferences
        Those that fit guides.
    """
    stacked = [c for c in choices["predict"] if c.spec.mixture == "stacked"]
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


def check_ood(datasets: list[Choice], predicts: list[Choice]) -> None:
    """Raise ConfigError where out-of-distribution images meet what takes none."""
    for dataset, predict in product(datasets, predicts):
        # They are all made in the format of the digits.
        if predict.spec.ood and dataset.spec.input_shape != (1, SIDE, SIDE):
            rule = (
                f"must be empty with data set `{dataset.spec.kind}` (`{dataset.place}`), whose "
                f"rows are not images of {SIDE} × {SIDE} pixels"
            )
            names = [spec.name for spec in predict.spec.ood]
            raise must(predict.place_of("ood"), rule, names)


def check_likelihoods(datasets: list[Choice], likelihoods: list[Choice]) -> None:
    """Raise ConfigError where a likelihood meets targets that it does not observe."""
    for dataset, likelihood in product(datasets, likelihoods):
        n_classes, n_targets = dataset.spec.n_classes, dataset.spec.n_targets
        if likelihood.spec.observes(n_classes, n_targets):
            _check_known(likelihood, n_targets)
            continue
        numbers = "numbers" if n_targets == 1 else f"{n_targets} numbers a row"
        targets = numbers if n_classes is None else f"{n_classes} classes"
        fitting = [k for k, cls in LIKELIHOODS.items() if cls.observes(n_classes, n_targets)]
        rule = (
            f"must be {' or '.join(sorted(fitting))} with data set `{dataset.spec.kind}` "
            f"(`{dataset.place}`), whose targets are {targets}"
        )
        raise must(likelihood.place, rule, likelihood.spec.kind)


def _check_known(likelihood: Choice, n_targets: int) -> None:
    """Raise ConfigError where noise is known of another number of targets."""
    spec = likelihood.spec
    rule = spec.rule_of_known(n_targets) if isinstance(spec, NumberLikelihood) else None
    if rule is not None:
        raise must(likelihood.place_of(spec.scale_field), rule, [*spec.scale_of_noise])


def check_diagnostics(
    datasets: list[Choice], inferences: list[Choice], predicts: list[Choice]
) -> None:
    """Raise ConfigError where snapshots are asked for of a fit that has none."""
    for dataset, inference, predict in product(datasets, inferences, predicts):
        steps = predict.spec.diagnostics.steps
        if not steps:
            continue
        place = f"{predict.place_of('diagnostics')}.steps"
        name = inference.spec.engine
        if name != "compiled":
            engine = inference.place_of("engine")
            rule = f"must be empty with engine {name} (`{engine}`), which keeps nothing on its way"
            raise must(place, rule, list(steps))
        if dataset.spec.task_of_rows != "classification":
            rule = (
                f"must be empty with data set `{dataset.spec.kind}` (`{dataset.place}`): "
                "snapshots are of classifiers only"
            )
            raise must(place, rule, list(steps))
