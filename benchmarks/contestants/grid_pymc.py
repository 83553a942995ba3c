"""Seconds of two fits by ``pm.fit`` with the C backend, one after the other: one JSON line.

Each call builds its function anew; the second finds the C code of the first in the cache.
"""

import json
import logging
import sys
import time

import pymc as pm

from contestants.pymc_network import network_model
from contestants.serving import Problem

if __name__ == "__main__":
    logging.disable(logging.INFO)
    problem = Problem.load(sys.argv[1])
    spent = []
    for seed in (0, 1):
        start = time.perf_counter()
        with network_model(problem.x, problem.y):
            pm.fit(
                problem.steps,
                method="advi",
                obj_optimizer=pm.adam(learning_rate=problem.learning_rate),
                progressbar=False,
                backend="c",
                random_seed=seed,
            )
        spent.append(time.perf_counter() - start)
    print(json.dumps(spent))
