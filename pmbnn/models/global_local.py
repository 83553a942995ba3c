"""Global–local priors: normal weights, with scales of weights or units beside the common one."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from pmbnn.core.spec import Positive, added
from pmbnn.models.layers import units_of_layers
from pmbnn.models.prior_base import Prior

if TYPE_CHECKING:
    from pytensor.tensor import TensorVariable


class UnitVariances(Prior):
    """Normal weights whose variance is that of the scale times one that each unit draws."""

    distribution: ClassVar[str] = "Normal"
    centrable: ClassVar[bool] = False
    is_scale_family: ClassVar[bool] = True

    def n_of_layers(self, parameters):
        """One variable for every unit."""
        return sum(units_of_layers(parameters))

    def of_layer(self, number, dims):
        """Variances of the layer's units at scale 1."""
        return {"variance": self.unit_variances(number, dims)}

    def own_scales(self, name, dims, scale, layer):  # noqa: D102
        import pytensor.tensor as pt

        return scale * pt.sqrt(layer["variance"])

    def unit_variances(self, number: int, dims: tuple[str, ...]) -> "TensorVariable":
        """Variances of the units of a layer at scale 1, from one free variable for each unit."""
        raise NotImplementedError


class MultivariateT(UnitVariances):
    """Multivariate Student's t prior: a normal one whose scale each unit draws by itself.

    weight = scale · √mixing · z with mixing ~ inverse-gamma(``nu`` / 2, ``nu`` / 2) and
    z ~ N(0, 1). The incoming weights and the bias of a unit, or of a filter of a convolution, share
    one mixing variable: together they have a multivariate t distribution with ``nu`` degrees of
    freedom, and each of them that of the prior ``student_t``. This form is always non-centred, and
    `centred` hyperpriors are rejected. The mixing variables are called ``unit_1_mixing``, ...

    Parameters
    ----------
    nu
        Degrees of freedom.

    References
    ----------
    Fortuin et al. (2022), Bayesian Neural Network Priors Revisited (heavy tails).
    """

    kind: Literal["multivariate_t"] = "multivariate_t"
    nu: Positive = 4.0

    def unit_variances(self, number, dims):
        """The mixing variables."""
        import numpy as np
        import pymc as pm

        half = np.float64(self.nu / 2)
        return pm.InverseGamma(f"unit_{number}_mixing", half, half, dims=dims)


class Horseshoe(Prior):
    """Horseshoe prior: normal, with a half-Cauchy scale for each weight.

    weight = scale · local · z with local ~ half-Cauchy(1) and z ~ N(0, 1). This form is always
    non-centred, and `centred` hyperpriors are rejected. The local scales are called
    ``weight_1_local``, ``bias_1_local``, ... The hyperprior is on the global scale, which has a
    half-Cauchy distribution in the paper.

    ``per: unit`` gives the *group* horseshoe, which can switch off whole units: the incoming
    weights and the bias of a unit, or of a filter of a convolution, share one local scale. The
    local scales of a layer are then called ``unit_1_local``, ... In the paper, weights of the
    output layer are normal; here its units have local scales too.

    ``slab_scale`` gives the *regularised* horseshoe, whose largest weights are shrunk too. With
    slab² ~ inverse-gamma(ν / 2, ν s² / 2), one for each layer, where ν is ``slab_df`` and s
    ``slab_scale``,

        weight = z / √(1 / (scale · local)² + 1 / slab²).

    Where scale · local is far below the slab, this is the horseshoe. Where it is far above, the
    weight has Student's t distribution with ``slab_df`` degrees of freedom and scale
    ``slab_scale``, in units of the weights: neither ``fan_in`` nor the hyperprior changes the
    slab, and it holds for biases with a ``bias_scale`` too. The squares of the slabs are called
    ``layer_1_slab_variance``, ...

    Parameters
    ----------
    per
        One local scale a ``weight`` (or bias), or one for every receiving ``unit``.
    slab_scale
        Scale of the slab, in units of the weights: the size of the largest weights that one
        expects. By default there is no slab.
    slab_df
        Degrees of freedom of the slab.

    References
    ----------
    Carvalho, Polson and Scott (2010), The horseshoe estimator for sparse signals, section 1;
    Piironen and Vehtari (2017), Sparsity information and regularization in the horseshoe and
    other shrinkage priors, equations 2.8 and 2.9 (slab);
    Ghosh, Yao and Doshi-Velez (2018), Structured Variational Learning of Bayesian Neural Networks
    with Horseshoe Priors, section 3 (units).
    """

    kind: Literal["horseshoe"] = "horseshoe"
    per: Literal["weight", "unit"] = added("weight")
    slab_scale: Positive | None = added(None)
    slab_df: Positive = added(4.0)
    distribution: ClassVar[str] = "Normal"
    centrable: ClassVar[bool] = False

    @property
    def is_scale_family(self):
        """Not with a slab, which the scale does not move."""
        return self.slab_scale is None

    @model_validator(mode="after")
    def _degrees_are_of_a_slab(self):
        if self.slab_df != 4.0 and self.slab_scale is None:
            raise ValueError(f"must have a `slab_scale` to set `slab_df`, got {self.slab_df:g}")
        return self

    def n_free(self, weights):
        """The weights, and a scale for each unless units have them."""
        return 2 * weights if self.per == "weight" else weights

    def n_of_layers(self, parameters):
        """The scales of units, and the slab of each layer, where there are any."""
        units = units_of_layers(parameters)
        local = sum(units) if self.per == "unit" else 0
        return local + (0 if self.slab_scale is None else len(units))

    def of_layer(self, number, dims):
        """Local scales of units and the slab, where there are any."""
        import numpy as np
        import pymc as pm
        import pytensor.tensor as pt

        variables = {}
        if self.per == "unit":
            variables["local"] = self._local(f"unit_{number}", dims)
        if self.slab_scale is not None:
            alpha, name = np.float64(self.slab_df / 2), f"layer_{number}_slab_variance"
            variance = pm.InverseGamma(name, alpha, alpha * self.slab_scale**2)
            variables["slab"] = pt.sqrt(variance)
        return variables

    def own_scales(self, name, dims, scale, layer):  # noqa: D102
        import pytensor.tensor as pt

        scales = scale * (layer["local"] if self.per == "unit" else self._local(name, dims))
        if self.slab_scale is None:
            return scales
        return scales / pt.sqrt(1 + (scales / layer["slab"]) ** 2)

    @staticmethod
    def _local(owner: str, dims: tuple[str, ...]) -> "TensorVariable":
        import numpy as np
        import pymc as pm

        return pm.HalfCauchy(f"{owner}_local", np.float64(1.0), dims=dims)


class R2D2(UnitVariances):
    """R2D2 prior: units divide the variance of a layer among them, and most get little.

    weight = scale · √(n · share) · z, where z ~ N(0, 1) and the shares of a layer's n units have a
    symmetric Dirichlet distribution. The incoming weights and the bias of a unit, or of a filter of
    a convolution, have one share; the mean of n · share is one. In the paper, which is about linear
    regression, each coefficient has its own share and a double-exponential distribution, and
    scale² / (1 + scale²), the share of variance that the model explains (R²), has a beta
    distribution: with hyperprior ``half_cauchy`` of scale 1 it is beta(1/2, 1/2). This form is
    always non-centred, and `centred` hyperpriors are rejected. Shares are gamma variables over
    their sum; these are called ``unit_1_part``, ...

    Parameters
    ----------
    concentration
        Parameter of the Dirichlet distribution: few units matter at small ones, all at large ones.
        Below 0.25, shares are too small for single precision.

    References
    ----------
    Zhang, Naughton, Bondell and Reich (2022), Bayesian Regression Using a Prior on the Model Fit:
    The R2-D2 Shrinkage Prior, section 2.
    """

    kind: Literal["r2d2"] = "r2d2"
    concentration: Annotated[float, Field(ge=0.25)] = 0.5
    has_quantiles: ClassVar[bool] = False

    def unit_variances(self, number, dims):
        """Shares of the layer's units times their number."""
        import numpy as np
        import pymc as pm

        alpha, one = np.float64(self.concentration), np.float64(1.0)
        part = pm.Gamma(f"unit_{number}_part", alpha, one, dims=dims)
        return part / part.mean()
