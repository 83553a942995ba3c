"""Settings of fits, as in experiment files."""

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from pmbnn.core.spec import Positive, Specification, Tune, added

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]

DEFAULT_STEPS = 10_000

POINT_GUIDES = ("map", "maximum_likelihood")
"""Guides that are a single point, without draws and entropy."""

ONE_BY_ONE_GUIDES = ("dropout", *POINT_GUIDES, "mean_field")
"""Guides in which some variables may be point parameters."""

NO_ELBO_GUIDES = (*POINT_GUIDES, "dropout", "laplace")
"""Guides whose objective is no bound of the evidence."""

OBJECTIVES = {
    "laplace": "evidence",
    "map": "log-posterior",
    "maximum_likelihood": "log-likelihood",
    "dropout": "objective",
}
"""What fits with some guides have in the place of an ELBO."""

Estimator = Literal["reparameterisation", "path_derivative", "local_reparameterisation", "flipout"]
ESTIMATORS: tuple[str, ...] = get_args(Estimator)

LAYER_ESTIMATORS = ("local_reparameterisation", "flipout")
"""Estimators that rewrite matrix products of weights."""

ONE_POSITION_ESTIMATORS = ("local_reparameterisation",)
"""Estimators for weights with one place per observation; those of a convolution have many."""

LARGEST_FULL_RANK = 5_000
"""Largest number of variables of a guide with a full covariance: 25 million entries and two moments
of each for the optimiser take 300 MB."""

LARGEST_LAPLACE = 2_000
"""Largest number of variables of a Laplace approximation: of each, its curvature takes the cost of
two gradients."""


class Inference(Specification):
    """Settings of a fit.

    Parameters
    ----------
    engine
        ``compiled``: many fits as one compiled program; ``pymc``: the same fits by ``pm.fit``,
        with fewer settings, to check against.
    guide
        Family of the approximation: normal with independent variables (``mean_field``), with
        a covariance that is diagonal plus one of low ``rank`` (``low_rank``), or with any
        covariance (``full_rank``); a normal at a mode of the posterior with the inverse curvature
        there as covariance, which predicts by the network made linear at the mode (``laplace``);
        a point, that of highest posterior density (``map``) or likelihood
        (``maximum_likelihood``); or a ``map`` point whose weight matrices lose random inputs, in
        the fit and in predictions (``dropout``, Gal and Ghahramani, 2016).
    rank
        Rank of the guide ``low_rank``.
    curvature
        That of the guide ``laplace``: of the log-density (``full``), or the generalised
        Gauss–Newton matrix (``gauss_newton``), which leaves out the curvature of the network in its
        weights. That is never negative; rectified units, which have kinks, need it.
    dropout_rate
        Probability with which the guide ``dropout`` drops an input of a weight matrix; it has no
        default. With 0 the guide is ``map``.
    estimator
        How the gradient is estimated: ``reparameterisation``; ``path_derivative``, without
        the score of the guide; ``local_reparameterisation``, which draws the product of weights and
        inputs for each row (Kingma et al., 2015); ``flipout``, which decorrelates the rows by
        random signs (Wen et al., 2018).
    kl
        ``auto`` computes the divergence from the prior exactly wherever prior and guide allow it;
        ``monte_carlo`` computes it at the draw.
    kl_weight
        Factor of the divergence from the prior; 1 is the ELBO, below 1 the posterior is tempered.
    kl_annealing
        Share of the steps, at the start, in which that factor rises from 0.
    kl_scaling
        ``sum`` over all weights; or ``first_dimension``, which divides the divergence of each
        tensor by its first dimension and multiplies it by the number of rows: no ELBO, but
        the objective of one published system, for its reproduction.
    steps
        Number of gradient steps of a fit. By default 10,000, unless ``epochs`` are given.
    epochs
        Number of passes over the training rows, in place of ``steps``. By default, ``steps`` count.
    batch
        Number of rows of a gradient step. By default, all.
    optimiser
        ``adam`` (Kingma and Ba, 2015), ``adamax`` or plain gradient steps (``sgd``).
    learning_rate
        Step size at its highest, or candidates ``{tune: {log: [low, high, count]}}`` to choose
        from by the ELBO of short fits.
    schedule
        ``constant``; ``one_cycle``, up to the learning rate over the first tenth and down to
        zero on a cosine; ``cosine``, down from the start; ``exponential``, down by the same
        factor at each step.
    decay
        Ratio of the last to the first learning rate of an ``exponential`` schedule.
    clip
        Largest norm of a gradient; larger ones are scaled down to it. By default none are.
    iterate_averaging
        Share of the steps, at the end, whose parameters are averaged; with 0 the last ones count.
    early_stop
        Stop a fit when it has converged; its learning rate must be constant.
    restarts
        Number of independent fits of a cell, of which that with the highest ELBO predicts.
    seed
        Seed of initial values, noise and minibatches.
    initial_mean
        Where the guide's means start, in unconstrained space: at ``zero``, at normal draws
        (``random``), at ``uniform`` ones, matrices at normal draws with variance 1 / fan-in and
        everything else at zero (``fan_in``), the same with the draws truncated at two standard
        deviations (``truncated_fan_in``: 1 / fan-in is the variance before that, as TensorFlow's
        truncated normal has it, and the standard deviation of what is left 0.88 of its root),
        or at the end of a ``map`` fit that starts at ``fan_in`` and takes a tenth of the steps.
    initial_spread
        Standard deviation of ``random`` draws, half the range of ``uniform`` ones.
    initial_scale
        Standard deviation at which every variable of the guide starts, in unconstrained space.
    improper_scale_cap
        Upper limit of the guide's standard deviations under an improper prior, where the ELBO
        has no maximum. Proper models are not touched.
    validation
        Share of the training rows that is held out to choose a tuned scale and to rank cells;
        then all training rows are fitted. With 0 nothing is held out; a tuned scale is then that of
        highest evidence, which the guide ``laplace`` alone has.
    check_optimum
        Compare the means of the restart that predicts with those of highest ELBO: the largest
        distance in standard deviations of the guide, its error, and the gain of the ELBO that is
        left. A fit has not converged either if it is farther than a quarter of a standard deviation
        by more than the error. It takes two to five times as long as six fits of a small network.
        Models with point parameters are not compared; those that are not networks always are.
    """

    needs_quantiles: ClassVar[bool] = False

    engine: Literal["compiled", "pymc"] = "compiled"
    guide: Literal[
        "mean_field", "low_rank", "full_rank", "laplace", "map", "maximum_likelihood", "dropout"
    ] = "mean_field"
    rank: Count = 10
    curvature: Literal["full", "gauss_newton"] = added("full")
    dropout_rate: Share | None = added(None)
    estimator: Estimator = "reparameterisation"
    kl: Literal["auto", "monte_carlo"] = "auto"
    kl_weight: Annotated[float, Field(ge=0)] = 1.0
    kl_annealing: Annotated[float, Field(ge=0, le=1, serialization_alias="kl_warm_up")] = 0.0
    kl_scaling: Literal["sum", "first_dimension"] = "sum"
    steps: Count | None = None
    epochs: Positive | None = None
    batch: Count | None = None
    optimiser: Literal["adam", "adamax", "sgd"] = "adam"
    learning_rate: Positive | Tune = 0.02
    schedule: Literal["constant", "one_cycle", "cosine", "exponential"] = "one_cycle"
    decay: Annotated[float, Field(gt=0, le=1)] = 0.1
    clip: Positive | None = None
    iterate_averaging: Share = Field(default=0.0, serialization_alias="average")
    early_stop: bool = False
    restarts: Annotated[int, Field(ge=1, le=1000)] = 1
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    initial_mean: Literal["zero", "random", "uniform", "fan_in", "truncated_fan_in", "map"] = (
        "fan_in"
    )
    initial_spread: Positive = 0.1
    initial_scale: Positive = 0.05
    improper_scale_cap: Positive = 10.0
    validation: Annotated[float, Field(ge=0, le=0.5)] = 0.2
    check_optimum: bool = added(False)

    @model_validator(mode="after")
    def _consistent(self):
        if self.steps is not None and self.epochs is not None:
            raise ValueError("must set `steps` or `epochs`, not both")
        if self.early_stop and self.schedule != "constant":
            raise ValueError(
                f"must have `schedule` constant with `early_stop`, got {self.schedule}: "
                "a rate that falls to zero stops every fit"
            )
        self._check_guide()
        if self.engine == "pymc":
            self._check_pymc()
        if self.check_optimum:
            self._check_optimum()
        return self

    def _check_guide(self) -> None:
        """Raise ValueError if something asks for another guide."""
        if self.guide != "mean_field":
            for name, values in (
                ("estimator", LAYER_ESTIMATORS),
                ("kl_scaling", ("first_dimension",)),
            ):
                if getattr(self, name) in values:
                    raise ValueError(
                        f"must have `guide` mean_field with `{name}` {getattr(self, name)}, "
                        f"got {self.guide}"
                    )
        if self.is_point and self.estimator != "reparameterisation":
            raise ValueError(
                f"must leave out `estimator` with `guide` {self.guide}, which draws nothing, "
                f"got {self.estimator}"
            )
        if self.guide == "laplace":
            self._check_laplace()
        elif self.curvature != "full":
            raise ValueError(
                f"must have `guide` laplace with `curvature` {self.curvature}, got {self.guide}"
            )
        self._check_dropout()
        if self.estimator == "path_derivative" and self.kl_scaling != "sum":
            raise ValueError("must have `kl_scaling` sum with `estimator` path_derivative")

    def _check_laplace(self) -> None:
        """Raise ValueError if a setting keeps a fit from a mode of the posterior."""
        for name, why in LAPLACE_LACKS.items():
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"must leave out `{name}` with `guide` laplace, {why}, "
                    f"got {getattr(self, name)}"
                )
        if isinstance(self.learning_rate, Tune):
            raise ValueError(
                "must give a number for `learning_rate` with `guide` laplace: a short fit has not "
                "come to its mode"
            )

    def _check_dropout(self) -> None:
        """Raise ValueError if the guide ``dropout`` has no rate, or another guide has one."""
        if self.guide != "dropout":
            if self.dropout_rate is not None:
                raise ValueError(f"must have `guide` dropout with `dropout_rate`, got {self.guide}")
            return
        if self.dropout_rate is None:
            raise ValueError("must have `dropout_rate` with `guide` dropout, such as 0.05")
        for name, why in DROPOUT_LACKS.items():
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"must leave out `{name}` with `guide` dropout, {why}, "
                    f"got {getattr(self, name)}"
                )

    def _check_optimum(self) -> None:
        """Raise ValueError if the maximum of a fit is not that of the ELBO of a normal guide."""
        for name in OPTIMUM_LACKS:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"must leave out `{name}` with `check_optimum`, which is of the ELBO of all "
                    f"rows, got {getattr(self, name)}"
                )
        if self.guide in NO_ELBO_GUIDES:
            raise ValueError(
                f"must have `guide` mean_field, low_rank or full_rank with `check_optimum`, "
                f"got {self.guide}"
            )

    def _check_pymc(self) -> None:
        """Raise ValueError if a setting is asked of ``pm.fit`` that it does not have."""
        if self.batch is not None:
            raise ValueError("must leave out `batch` with engine `pymc`, which fits full batch")
        for name in PYMC_LACKS:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"must leave out `{name}` with engine `pymc`, which has no other choice, "
                    f"got {getattr(self, name)}"
                )
        if self.initial_mean == "map":
            raise ValueError("must not have `initial_mean` map with engine `pymc`")
        if isinstance(self.learning_rate, Tune):
            raise ValueError("must give a number for `learning_rate` with engine `pymc`")

    @property
    def is_point(self) -> bool:
        """Whether the guide is a single point."""
        return self.guide in POINT_GUIDES

    @property
    def objective(self) -> str:
        """Name of what restarts are ranked by."""
        return OBJECTIVES.get(self.guide, "ELBO")

    @property
    def has_entropy(self) -> bool:
        """Whether the objective has the entropy of a guide.

        Without it a fit maximises a density, which is that of the constrained variables and has a
        maximum under an improper prior, too.
        """
        return not self.is_point and self.guide != "dropout"

    def total_steps(self, rows: int) -> int:
        """Gradient steps of a fit on that many rows."""
        if self.epochs is None:
            return self.steps or DEFAULT_STEPS
        return max(1, round(self.epochs * rows / min(self.batch or rows, rows)))


PYMC_LACKS = (
    *("guide", "estimator", "kl", "kl_weight", "kl_annealing", "kl_scaling", "optimiser"),
    *("clip", "iterate_averaging", "early_stop"),
)
"""Settings that the engine ``pymc`` takes at their defaults only."""

OPTIMUM_LACKS = ("engine", "batch", "kl_weight", "kl_scaling")
"""Settings that ``check_optimum`` takes at their defaults only."""

LAPLACE_LACKS = {
    "batch": "which needs the curvature of all rows",
    "estimator": "which draws nothing",
    "kl_weight": "which is at a mode of the posterior",
    "kl_annealing": "which is at a mode of the posterior",
}
"""Settings that the guide ``laplace`` takes at their defaults only, and why."""

DROPOUT_LACKS = {
    "estimator": "which drops inputs of each row",
    "kl": "whose expectations are exact",
}
"""Settings that the guide ``dropout`` takes at their defaults only, and why."""
