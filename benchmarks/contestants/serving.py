"""A contestant's end of the line: requests come in, JSON lines go out, timed right here.

Standard library and NumPy only: every environment runs this.
"""

import json
import os
import platform
import resource
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Protocol

import numpy as np

SHAPES = {
    "weight_1": (2, 5),
    "bias_1": (5,),
    "weight_2": (5, 5),
    "bias_2": (5,),
    "weight_3": (5, 2),
    "bias_3": (2,),
}
"""Parameters of the network in the order of every flat vector here."""


@dataclass(frozen=True)
class Problem:
    """What is to be fitted.

    `x` is ``(700, 2)``, `y` ``(700,)``, `starts` ``(replica, 57)``: first means of the guides,
    whose first scale is `initial_scale`. `chunk` is what a contestant that can stop between
    two steps does on one request; the others make a whole fit of `steps`.
    """

    x: np.ndarray
    y: np.ndarray
    starts: np.ndarray
    initial_scale: float
    learning_rate: float
    steps: int
    chunk: int

    def save(self, path) -> None:
        """Write to an npz file."""
        np.savez(path, **self.__dict__)

    @classmethod
    def load(cls, path) -> "Problem":
        """Read what `save` wrote."""
        with np.load(path) as stored:
            found = {name: stored[name] for name in stored}
        return cls(**{k: v if v.ndim else v.item() for k, v in found.items()})

    @property
    def initial_rho(self) -> float:
        """Inverse softplus of the first scale."""
        return float(np.log(np.expm1(self.initial_scale)))


class Contestant(Protocol):
    """What is timed. Compilation belongs into `warm_up`, whose steps are taken off its time."""

    def warm_up(self) -> int:
        """Do whatever comes before the steady state; how many steps that included."""

    def chunk(self) -> int:
        """Do some steps; how many, summed over the fits made at once."""

    def guide(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and scales after all steps, ``(fit, 57)`` each."""


def split(flat: np.ndarray) -> dict[str, np.ndarray]:
    """Parameters by name from the flat vector."""
    ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES.values()])
    parts = np.split(flat, ends[:-1])
    return {name: part.reshape(SHAPES[name]) for name, part in zip(SHAPES, parts)}  # noqa: B905


def join(parameters) -> np.ndarray:
    """The flat vector from parameters by name."""
    return np.concatenate([np.ravel(np.asarray(parameters[name])) for name in SHAPES])


def serve(
    build: Callable[[Problem, str], Contestant],
    packages: Sequence[str],
    load: Callable[[str], object] = Problem.load,
) -> None:
    """Answer requests until the line closes: ``compile``, ``chunk``, ``guide``, ``memory``.

    `load` makes the problem of the path that the command line names.
    """
    # Libraries print progress; the line is kept for answers, the rest goes to the log.
    line = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    variant, path = sys.argv[1:]
    contestant = None
    found = {name: version(name) for name in packages} | {"python": platform.python_version()}
    print(json.dumps({"versions": found}), file=line)
    for request in map(str.strip, sys.stdin):
        try:
            start = time.perf_counter()
            if request == "compile":
                contestant = build(load(path), variant)
                answer = {"steps": contestant.warm_up()}
            elif request == "chunk":
                answer = {"steps": contestant.chunk()}
            elif request == "memory":
                kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                answer = {"megabytes": kilobytes / 1024}
            else:
                loc, scale = contestant.guide()
                answer = {"loc": np.asarray(loc).tolist(), "scale": np.asarray(scale).tolist()}
            answer["seconds"] = time.perf_counter() - start
        except Exception as error:
            traceback.print_exc()
            first = (str(error).strip().splitlines() or [""])[0]
            answer = {"error": f"{type(error).__name__}: {first}"}
        print(json.dumps(answer), file=line)
