"""What every weight prior has in common."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import model_validator

from pmbnn.core.errors import SettingError
from pmbnn.core.spec import Positive, Specification, added

if TYPE_CHECKING:
    import numpy as np
    from pytensor.tensor import TensorVariable

    from pmbnn.data.arrays import Rows
    from pmbnn.models.layers import Parameter

STANDARD = "_z"
"""Ending of the names of standard draws that a model transforms; traces do not keep them."""


class Prior(Specification):
    """Prior distribution of every weight and bias.

    Parameters
    ----------
    fan_in
        Divide the scale by the square root of the number of inputs of a unit (Neal, 1996).
        ``flat`` and ``cell`` have no scale.
    bias_scale
        Fixed scale of the biases, whatever ``fan_in`` and the hyperprior are. By default, biases
        have the scale of the weights of their layer; ``flat`` and ``cell`` take none.
    """

    kind: str
    fan_in: bool = False
    bias_scale: Positive | None = added(None)

    distribution: ClassVar[str]
    """Name of a PyMC distribution with a location and a scale; for the default `variable`."""

    has_scale: ClassVar[bool] = True
    """Whether there is a scale to put a hyperprior on."""

    is_smooth: ClassVar[bool] = False
    """Whether its density has two derivatives everywhere, as Laplace's approximation needs."""

    has_quantiles: ClassVar[bool] = True
    """Whether the quantile functions of all its variables are known, as tempered SMC needs."""

    centrable: ClassVar[bool] = True
    """Whether weights can be drawn around a learned scale directly.

    If not, they are always the scale times the `variable` of scale 1.
    """

    @property
    def is_scale_family(self) -> bool:
        """Whether weights are the scale times what they are at scale 1.

        A prior with `own_scales` says so itself: nothing else tells what it does with the scale.
        """
        return self.has_scale and type(self).own_scales is Prior.own_scales

    @property
    def is_proper(self) -> bool:
        """Whether it is a distribution. A prior without a scale that is one says so itself."""
        return self.has_scale

    @property
    def is_on_line(self) -> bool:
        """Whether the free variables of weights are on the whole line, as a temperature needs them.

        Scales of single weights and units are positive: a prior with `own_scales` of other
        variables says so itself.
        """
        return type(self).own_scales is Prior.own_scales

    @model_validator(mode="after")
    def _scaled_by_something(self):
        if self.has_scale:
            return self
        without = f"with prior `{self.kind}`, which has no scale"
        if self.fan_in:
            raise SettingError("fan_in", f"must be false {without}")
        if self.bias_scale is not None:
            raise ValueError(f"must leave out `bias_scale` {without}, got {self.bias_scale:g}")
        return self

    @property
    def for_predictions(self) -> "Prior":
        """The prior in models that predict with stored draws, which need no density of weights."""
        return self

    def why_not_of(self, network: Specification) -> str | None:
        """What the prior must be where it does not fit a network; None if it does."""
        return None

    def constants(self, rows: "Rows") -> "Mapping[str, np.ndarray]":
        """Names and values of the constants that a model on some rows holds as data."""
        return {}

    def n_free(self, weights: int) -> int:
        """Number of free scalars of a model with this number of weights, weights included.

        Those of `n_of_layers` are not among them.
        """
        return weights

    def n_of_layers(self, parameters: "Sequence[Parameter]") -> int:
        """Number of further free scalars, of the layers of these weights and biases."""
        return 0

    def shared(self) -> Mapping[str, "TensorVariable"]:
        """Variables that all weights of the current model share, except their scale, by name.

        It is called once per model and may create free variables.
        """
        return {}

    def of_layer(self, number: int, dims: tuple[str, ...]) -> Mapping[str, "TensorVariable"]:
        """Variables that weights and biases of a layer share, except their scale, by name.

        It is called once per layer and may create free variables.

        Parameters
        ----------
        number
            Number of the layer, from 1.
        dims
            Dims of the layer's outputs.
        """
        return {}

    def own_scales(
        self,
        name: str,
        dims: tuple[str, ...],
        scale: "TensorVariable | float",
        layer: Mapping[str, "TensorVariable"],
    ) -> "TensorVariable | None":
        """Scales of single weights, in place of the common one.

        None if the prior has no such scales. With them, weights are always non-centred.

        Parameters
        ----------
        name, dims
            Name and dims of the weights.
        scale
            The common scale.
        layer
            What `of_layer` returned for their layer.
        """
        return None

    def variable(
        self,
        name: str,
        scale: "TensorVariable | float",
        dims: tuple[str, ...],
        shared: Mapping[str, "TensorVariable"],
    ) -> "TensorVariable":
        """Random variable ``name`` with location 0 and the given scale, in the current model."""
        import pymc as pm

        return getattr(pm, self.distribution)(name, 0.0, scale, dims=dims)
