"""Experiment files made at random: valid ones, with the number of their cells, and broken ones."""

import random
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings, strategies

JUNK = (
    *("null", "~", "true", "-1", "0", "1e400", ".nan", "-.inf", "1e-320", "9" * 40, "0x1f", "010"),
    *("[]", "{}", "[[]]", "{kind: }", "[1, [2, [3]]]", "{tune: {log: [0, 1, 5]}}", "*a", "&a b"),
    *("{log: [1, 1, 2]}", "kind", "'", '"', ": :", "- -", "\t", "\u2028", "!!python/none", "<<: 1"),
)
"""What is put in the place of a value."""


def at_random(number: int) -> Callable[[Callable[[random.Random], None]], Callable[[], None]]:
    """Decorator: call a function with so many states of chance, always the same ones.

    Hypothesis plays the part of chance: it also tries what is all first or all last, and makes what
    fails small.
    """
    chosen = settings(
        max_examples=number,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return lambda function: chosen(given(strategies.randoms(use_true_random=False))(function))


def valid_experiment(rng: random.Random) -> tuple[dict[str, Any], int]:
    """Content of a valid file, and how many cells its axes make."""
    kinds = rng.sample(["moons", "circles"], rng.randint(1, 2))
    made = [_sweep(rng, f"sweep{number}", kind) for number, kind in enumerate(kinds)]
    return {"name": "made", "sweeps": [sweep for sweep, _ in made]}, sum(n for _, n in made)


def _sweep(rng, name, kind):
    seeds, noises = _some(rng, range(6)), _some(rng, [0.1, 0.2, 0.3, 0.4])
    networks = _some(rng, [[2], [5], [5, 5], [3, 2]])
    nus = _some(rng, [3, 4, 5])
    priors = {"normal": 1, "laplace": 1, "cauchy": 1, "student_t": len(nus), "flat": 0}
    chosen = _some(rng, list(priors))
    scales = _some(rng, [0.1, 0.5, 1.0, 2.0])
    hyperpriors = {"half_normal": 1, "half_cauchy": 1, "fixed": len(scales)}
    of_scales = _some(rng, list(hyperpriors))
    if "flat" in chosen and "fixed" not in of_scales:
        of_scales.append("fixed")
    steps, rates = _some(rng, [10, 100]), _some(rng, [0.01, 0.02])
    scaled = sum(priors[prior] for prior in chosen)
    pairs = scaled * sum(hyperpriors[h] for h in of_scales) + ("flat" in chosen)
    sweep = {
        "name": name,
        "dataset": {"kind": kind, "noise": noises, "train": 40, "test": 20, "seed": seeds},
        "network": {"kind": "dense", "hidden": networks},
        "prior": [{"kind": p, "nu": nus} if p == "student_t" else p for p in chosen],
        "hyperprior": [{"kind": h, "scale": scales} if h == "fixed" else h for h in of_scales],
        "inference": {"steps": steps, "learning_rate": rates},
    }
    cells = len(seeds) * len(noises) * len(networks) * pairs * len(steps) * len(rates)
    return sweep, cells


def _some(rng, values):
    values = list(values)
    return rng.sample(values, rng.randint(1, len(values)))


def broken_text(text: str, rng: random.Random) -> str:
    """The same text after one to three accidents; it may still be valid."""
    for _ in range(rng.randint(1, 3)):
        text = rng.choice(ACCIDENTS)(text, rng) or " "
    return text


def _cut(text, rng):
    return text[: rng.randrange(len(text))]


def _letter(text, rng):
    at, new = rng.randrange(len(text)), chr(rng.choice([*range(9, 127), 0xA0, 0xFEFF, 0x1F600]))
    return text[:at] + new + text[at + rng.randint(0, 1) :]


def _line(text, rng):
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    return "\n".join(lines[:at] + lines[at : at + 1] * rng.choice([0, 2]) + lines[at + 1 :])


def _value(text, rng):
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    head, sign, _ = lines[at].partition(rng.choice([":", "- "]))
    lines[at] = f"{head}{sign} {rng.choice(JUNK)}" if sign else rng.choice(JUNK)
    return "\n".join(lines)


def _swap(text, rng):
    words = text.split(" ")
    one, two = rng.randrange(len(words)), rng.randrange(len(words))
    words[one], words[two] = words[two], words[one]
    return " ".join(words)


ACCIDENTS = (_cut, _letter, _line, _value, _value, _value, _swap)
