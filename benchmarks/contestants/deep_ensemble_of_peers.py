"""Ensemble of microcanonical chains by sklearn-contrib-bde, for `ensembles.py`.

Run in an environment that has it: ``python -m contestants.deep_ensemble_of_peers IN.npz OUT.npz
SEED``. The settings are those of its published runs. Its progress bar, for which the sampler
would call Python at every step of every member, is left out: with it, processor times are many
times as long.
"""

import sys
import time

import numpy as np


def main() -> None:
    """Fit, and write means and standard deviations, ``(member, draw, row)``."""
    given, out, seed = sys.argv[1:]
    import bde.sampler.warmup as warmup
    from bde import BdeRegressor

    find = warmup.mclmc_find_L_and_step_size
    warmup.mclmc_find_L_and_step_size = lambda *a, **k: find(*a, **(k | {"tick": None}))
    data = np.load(given)
    model = BdeRegressor(
        n_members=10,
        hidden_layers=[16] * 4,
        seed=int(seed),
        epochs=1_200,
        patience=20,
        lr=1e-3,
        warmup_steps=50_000,
        n_samples=1_000,
        n_thinning=10,
    )
    start = time.process_time()
    model.fit(data["x"].astype(np.float32), data["y"].astype(np.float32))
    seconds = time.process_time() - start
    raw = np.asarray(model.predict(data["x_test"].astype(np.float32), raw=True), float)
    sd = np.logaddexp(0, raw[..., 1]) + 1e-6
    np.savez(out, mean=raw[..., 0], sd=sd, seconds=seconds)


if __name__ == "__main__":
    main()
