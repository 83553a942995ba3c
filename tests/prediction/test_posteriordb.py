"""Chains under flat priors, compared with the reference draws of posteriordb."""

import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pmbnn as pb

DATA = os.environ.get("PMBNN_DATA")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        DATA is None or not (Path(DATA) / "posteriordb").is_dir(),
        reason="PMBNN_DATA must have posteriordb",
    ),
]


def loaded(kind, name):
    with zipfile.ZipFile(Path(DATA) / "posteriordb" / kind / f"{name}.json.zip") as archive:
        return json.loads(archive.read(archive.namelist()[0]))


def regression(y, *columns):
    """Linear regression under flat priors, as Stan has it where none is written."""
    x = np.stack(columns, axis=1)
    with pm.Model() as model:
        beta = pm.Flat("beta", shape=x.shape[1])
        pm.Normal("y", x @ beta, pm.HalfFlat("sigma"), observed=y)
    return model


def earn_height(data):
    return regression(data["earn"], np.ones_like(data["height"]), data["height"])


def logearn_interaction_z(data):
    height, male = data["height"], data["male"]
    z = (height - height.mean()) / height.std(ddof=1)
    return regression(np.log(data["earn"]), np.ones_like(z), z, male, z * male)


@pytest.mark.parametrize("engine", ["mclmc", "nuts"])
@pytest.mark.parametrize("build", [earn_height, logearn_interaction_z])
def test_chains_under_flat_priors(build, engine):
    """Earnings in dollars have coefficients of 10⁴; in logarithms, of one."""
    data = {name: np.asarray(v, float) for name, v in loaded("data", "earnings").items()}
    reference = pb.sample(build(data), engine=engine, progress=False)
    assert reference.status == "converged"
    assert "a prior is improper" in reference.reason
    expected = loaded("draws", f"earnings-{build.__name__}")
    drawn = reference.sample()["beta"]
    errors = []
    for i in range(drawn.shape[-1]):
        theirs = np.concatenate([chain[f"beta[{i + 1}]"] for chain in expected])
        errors.append(abs(drawn[..., i].mean() - theirs.mean()) / theirs.std())
    assert max(errors) < 0.1
