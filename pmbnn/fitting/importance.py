"""Diagnostics by importance weights of a cell's draws: Pareto k-hat of a guide, LOO of chains."""

import numpy as np

from pmbnn.experiment.cost import is_large
from pmbnn.fitting.inferred import InferredCell
from pmbnn.fitting.sampling import trace_values
from pmbnn.prediction.leave_one_out import LEAST_DRAWS, leave_one_out, pareto_k
from pmbnn.prediction.predictor import Predictor


def importance_results(
    inferred: InferredCell, predictor: Predictor, log_scale: float = 0.0
) -> dict[str, float]:
    """Results by name.

    Of a fit ``pareto_k``, k-hat of the ratios of joint density and guide of the best restart,
    whatever the mixture; missing of a point, and of large networks, whose draws at every row would
    take longer than the fit. Of a sampler, by the draws that its trace keeps, ``log_likelihood``,
    the mean of that of all training rows, in nats, with its Monte-Carlo standard error
    ``log_likelihood_mcse``; ``elpd_loo``, the expected log predictive density by leaving rows out,
    in nats an observation, of targets in original units (higher is better), its standard error over
    rows ``elpd_loo_se``, and ``loo_pareto_k``, the largest k-hat of a row.

    Parameters
    ----------
    log_scale
        `Standardisation.log_scale` of the targets; ``log_likelihood``, like an ELBO, is that of the
        model, whose targets are standardised.

    References
    ----------
    Yao et al. (2018), Yes, but did it work? Evaluating variational inference; Vehtari, Gelman and
    Gabry (2017), Practical Bayesian model evaluation using leave-one-out cross-validation and WAIC.
    """
    if inferred.samples is not None:
        return _chain_results(inferred, predictor, log_scale)
    if is_large(inferred.cell) or inferred.cell.inference.is_point:
        return {}
    best = inferred.sources[inferred.best]
    values = predictor.values(best, inferred.cell.predict.draws)
    log_ratio = predictor.log_joint(inferred.data, values)[1] - best.log_density(values)
    k = pareto_k(log_ratio)
    return {} if np.isnan(k) else {"pareto_k": k}


def _chain_results(
    sampled: InferredCell, predictor: Predictor, log_scale: float
) -> dict[str, float]:
    values = trace_values(sampled)
    chains, draws, size = values.shape
    log_likelihood, _ = predictor.log_joint(sampled.data, values.reshape(-1, size))
    by_draw = log_likelihood.sum(axis=1, dtype=np.float64)
    by_chain = by_draw.reshape(chains, draws).mean(axis=1)
    results = {
        "log_likelihood": float(by_chain.mean()),
        "log_likelihood_mcse": float(by_chain.std(ddof=1) / np.sqrt(chains)),
    }
    if chains * draws < LEAST_DRAWS:
        return results
    by_row, k = leave_one_out(log_likelihood)
    error = by_row.std(ddof=1) / np.sqrt(len(by_row))
    return results | {
        "elpd_loo": float(by_row.mean()) - log_scale,
        "elpd_loo_se": float(error),
        "loo_pareto_k": float(np.max(k)),
    }
