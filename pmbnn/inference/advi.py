"""ADVI in steps: a model's ELBO, compiled once, and the gradient steps that raise it.

`init` makes the state of a fit, `step` takes one gradient step, and `run` many in one compiled
loop. All three are pure functions. `pb.fit` takes these steps for models of this package; for
others it first searches for coordinates in which to move, see `build_program`.

Examples
--------
A training loop that takes the steps of ``pb.fit(model, steps=1000)``, to the last bit:

>>> settings = pb.Inference(steps=1000)  # doctest: +SKIP
>>> program = pb.advi.build_program(model, settings, dtype="float64")  # doctest: +SKIP
>>> [replica] = pb.advi.build_replicas(model)  # doctest: +SKIP
>>> state = pb.advi.init(replica, program)  # doctest: +SKIP
>>> data = pb.advi.prepare(replica, program)  # doctest: +SKIP
>>> for _ in range(program.steps):  # doctest: +SKIP
...     state, info = pb.advi.step(replica.key, state, program, data)
>>> pb.advi.constrained_parameters(state, program)["loc"]  # doctest: +SKIP
"""

from pmbnn.inference.groups import init
from pmbnn.inference.program import (
    Info,
    Program,
    State,
    build_program,
    build_replicas,
    constrained_parameters,
    prepare,
    run,
    step,
)

__all__ = [
    "Info",
    "Program",
    "State",
    "build_program",
    "build_replicas",
    "constrained_parameters",
    "init",
    "prepare",
    "run",
    "step",
]
