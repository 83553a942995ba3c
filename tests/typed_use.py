"""Uses of the public names, as a type checker sees them; nothing of it is run."""

from typing import assert_type

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from matplotlib.figure import Figure

import pmbnn as pb

x, y = np.zeros((5, 2)), np.zeros(5, int)

model = pb.dense_classifier(x, y, hidden=(5, 5), prior=pb.Laplace(), hyperprior="half_cauchy")
assert_type(model, pm.Model)
approximation = pb.fit(model, steps=100, restarts=2, device="cpu")
assert_type(approximation, pb.Posterior)
assert_type(approximation.sample(100), dict[str, np.ndarray])
assert_type(approximation.to_datatree(), xr.DataTree)
assert_type(approximation.elbo, float)

reference = pb.sample(model, engine="nuts", chains=4)
assert_type(reference, pb.Posterior)
assert_type(reference.predict_proba(x), np.ndarray)
assert_type(pb.load("posterior.nc", model), pb.Posterior)
assert_type(pb.check(approximation, reference=reference), pb.Agreement)

classifier = pb.BNNClassifier(hidden=(5,), prior=pb.Cauchy(), random_state=1).fit(x, y)
assert_type(classifier, pb.BNNClassifier)
assert_type(classifier.predict_proba(x), np.ndarray)
assert_type(classifier.model_, pm.Model)
assert_type(classifier.posterior_, pb.Posterior)
assert_type(pb.BNNClassifier.load("fitted.nc"), pb.BNNClassifier)
assert_type(pb.BNNRegressor().fit(x, y).predict_interval(x, 0.9), np.ndarray)
assert_type(classifier.calibrate(x, y).predict_set(x, 0.9, conformal=True), np.ndarray)
assert_type(classifier.predict_uncertainty(x), pd.DataFrame)

held = pb.Dataset.from_arrays(x, y.astype(bool))
assert_type(pb.run({"name": "own", "sweeps": [{"dataset": held}]}), pb.ExperimentResults)
results = pb.load_results("results/priors")
assert_type(results, pb.ExperimentResults)
assert_type(pb.plot(results.select(dataset="moons"), "maps"), Figure)
assert_type(pb.show_versions(), None)


@pb.register
class Own(pb.Laplace):
    """A prior of one's own."""
