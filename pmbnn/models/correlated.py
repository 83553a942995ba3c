"""Normal priors of correlated weights: of a kernel's pixels, or a layer's inputs and units."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from pmbnn.core.spec import Positive
from pmbnn.models.prior_base import STANDARD, Prior

if TYPE_CHECKING:
    from pytensor.tensor import TensorVariable


class CorrelatedNormal(Prior):
    """Normal prior of convolutions whose kernels are correlated over their pixels.

    The correlation of two weights of a kernel is exp(-distance / ``lengthscale``), a Matérn
    covariance of order 1/2. Weights of different filters or input channels are independent, as are
    biases and the weights of dense layers. Every weight has the standard deviation ``scale``: on a
    network without convolutions this is the prior ``normal``, in its non-centred form.

    A kernel is the scale times the covariance's Cholesky factor times standard normal draws. This
    form is always non-centred, and `centred` hyperpriors are rejected. The draws are called
    ``weight_1_z``, ... The estimators ``local_reparameterisation`` and ``flipout`` do not rewrite
    convolutions with this prior.

    Parameters
    ----------
    lengthscale
        Distance at which the correlation is 1/e, in pixels of the kernel; at most a million.

    References
    ----------
    Fortuin et al. (2022), Bayesian Neural Network Priors Revisited (correlated weights).
    """

    kind: Literal["correlated_normal"] = "correlated_normal"
    lengthscale: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    is_smooth: ClassVar[bool] = True
    centrable: ClassVar[bool] = False

    def variable(self, name, scale, dims, shared):
        """Standard draws, correlated over all dims but the first and the last."""
        import numpy as np
        import pymc as pm

        standard = pm.Normal(name, 0.0, scale, dims=dims)
        if len(dims) < 3:
            return standard
        coords = pm.modelcontext(None).coords
        inputs, *sides, units = shape = [len(coords[dim]) for dim in dims]
        pixels = np.indices(sides).reshape(len(sides), -1).T
        distance = np.linalg.norm(pixels[:, None] - pixels, axis=-1)
        root = np.linalg.cholesky(np.exp(-distance / self.lengthscale))
        return (root @ standard.reshape((inputs, -1, units))).reshape(shape)


class MatrixNormal(Prior):
    """Matrix normal prior with learned correlations of a layer's inputs and of its units.

    The weights of a layer are scale · A · Z · Bᵀ with independent standard normal Z, ``(input,
    unit)``: those of inputs i, j and of units k, l have the correlation (A Aᵀ)ᵢⱼ · (B Bᵀ)ₖₗ. Both
    correlation matrices have LKJ distributions and A and B are their Cholesky factors. Every
    weight has the standard deviation ``scale``. Biases are independent. Weights of a convolution
    are correlated over its channels, and not over the pixels of a kernel.

    A row of a Cholesky factor is made of normal draws, with a chi draw on the diagonal, over their
    length. This form is always non-centred, and `centred` hyperpriors are rejected. The
    correlations below the diagonal, row by row, are called ``weight_1_input_correlation`` and
    ``weight_1_unit_correlation``. n inputs have n (n - 1) / 2 of them: for many, as pixels, choose
    ``correlate: units``. The estimators ``local_reparameterisation`` and ``flipout`` do not rewrite
    layers with this prior.

    Parameters
    ----------
    eta
        Shape of the LKJ distributions: at 1 all correlation matrices are equally probable, above it
        small correlations are more so.
    correlate
        Which weights are correlated: those of different ``inputs``, of different ``units``, or of
        ``both``.

    References
    ----------
    Louizos and Welling (2016), Structured and Efficient Variational Deep Learning with Matrix
    Gaussian Posteriors, section 2; Lewandowski, Kurowicka and Joe (2009), Generating random
    correlation matrices based on vines and extended onion method.
    """

    kind: Literal["matrix_normal"] = "matrix_normal"
    eta: Positive = 1.0
    correlate: Literal["both", "inputs", "units"] = "both"
    has_quantiles: ClassVar[bool] = False
    centrable: ClassVar[bool] = False
    is_on_line: ClassVar[bool] = False

    def n_of_layers(self, parameters):
        """A chi-squared variable for each input or unit, and a normal one for each pair of them."""
        sides = [side for p in parameters if not p.is_bias for side in self._sides(p.dims, p.shape)]
        return sum(n * (n + 1) // 2 for *_, n in sides)

    def variable(self, name, scale, dims, shared):
        """Standard draws, correlated over their first and their last dim."""
        import pymc as pm
        import pytensor.tensor as pt

        values = pm.Normal(name, 0.0, scale, dims=dims)
        if len(dims) < 2:
            return values
        coords = pm.modelcontext(None).coords
        for axis, side, dim, _ in self._sides(dims, [len(coords[dim]) for dim in dims]):
            root = self._root(f"{name.removesuffix(STANDARD)}_{side}", dim)
            values = pt.moveaxis(pt.tensordot(root, values, axes=[[1], [axis]]), 0, axis)
        return values

    def _sides(self, dims, shape) -> list[tuple[int, str, str, int]]:
        """Axis, name, dim and length of what is correlated, where there are several of it."""
        return [
            (axis, side, dims[axis], shape[axis])
            for axis, side in ((0, "input"), (-1, "unit"))
            if self.correlate in ("both", f"{side}s") and shape[axis] > 1
        ]

    def _root(self, name: str, dim: str) -> "TensorVariable":
        """Cholesky factor of a correlation matrix over a dim of the current model.

        The correlations of a Wishart matrix of scale one with n - 1 + 2 eta degrees of freedom have
        the LKJ distribution, and its Cholesky factor has independent elements (Bartlett): normal
        ones, and chi variables on the diagonal.
        """
        import numpy as np
        import pymc as pm
        import pytensor.tensor as pt

        model = pm.modelcontext(None)
        labels, pair = model.coords[dim], f"{dim}_pair"
        n = len(labels)
        row, column = np.tril_indices(n, -1)
        if pair not in model.coords:
            pairs = zip(row, column, strict=True)
            model.add_coord(pair, [f"{labels[j]}, {labels[i]}" for i, j in pairs])
        below = pm.Normal(f"{name}_below{STANDARD}", dims=pair)
        half = np.float64(self.eta) + np.arange(n - 1, -1, -1) / 2
        squares = pm.Gamma(f"{name}_diagonal{STANDARD}", half, np.float64(0.5), dims=dim)
        factor = pt.diag(pt.sqrt(squares))[row, column].set(below)
        factor = factor / pt.sqrt((factor**2).sum(axis=1, keepdims=True))
        pm.Deterministic(f"{name}_correlation", (factor @ factor.T)[row, column], dims=pair)
        return factor
