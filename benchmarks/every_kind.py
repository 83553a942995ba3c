"""Each kind of data in an environment of its own that has nothing but the built wheel.

Not speed: the wheel is built and installed with its extra `parquet`; then, with no folder of data
and empty caches, small files of every kind are swept by an experiment file, and all of them again
through ``pb.run``. Every cell must be stored, whole and with its figures: maps of two inputs, bands
of one. OpenML is asked for last, through the command: without a network it must be one line and
status 2.

Run: ``uv run python benchmarks/every_kind.py`` (5 min, for the most part installing); it needs a
registry of packages. ``--keep FOLDER`` leaves the results there, to be looked at.
"""

import argparse
import gzip
import os
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

import measuring

EXPERIMENT = """
name: {name}
sweeps:
  - name: classes
    dataset:
      - {{kind: table, file: plane.csv, target: side}}
      - {{kind: table, file: plane.csv.gz, target: side}}
      - {{kind: table, file: plane.parquet, target: side}}
      - {{kind: npz, file: plane.npz}}
      - {{kind: sklearn, name: iris}}
      - {{kind: sklearn, name: wine}}
      - {{kind: sklearn, name: breast_cancer}}
      - {{kind: sklearn, name: digits}}
      - {{kind: images, path: pictures}}
      - {{kind: images, path: pictures, colour: true, size: [[8, 6]]}}
      - {{kind: images, path: pictures.zip, colour: true}}
      - {{kind: idx, path: idx}}
    network: &network {{kind: dense, hidden: [[5]]}}
    prior: normal
    hyperprior: half_normal
    inference: &inference {{steps: 1000, learning_rate: 0.02, validation: 0, restarts: 2}}
    predict: &predict {{draws: 50, trace_draws: 50}}
  - name: numbers
    dataset:
      - {{kind: sklearn, name: diabetes}}
      - {{kind: table, file: line.csv, target: y}}
      - {{kind: table, file: plane.csv, target: height, without: [[side]]}}
    network: *network
    prior: normal
    hyperprior: half_normal
    likelihood: {{kind: normal, sd: half_normal}}
    inference: *inference
    predict: *predict
"""

OPENML = """
name: openml
sweeps:
  - name: openml
    dataset: {kind: openml, name: iris, version: 1}
    network: {kind: dense, hidden: [[3]]}
    prior: normal
    hyperprior: half_normal
    inference: {steps: 100, validation: 0}
"""


def write_files(folder: Path) -> None:
    """Write small files of every kind, two classes and a sine."""
    import numpy as np
    import pandas as pd
    from PIL import Image

    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    side = np.where(x.sum(axis=1) > 0, "above", "below")
    frame = pd.DataFrame(x, columns=["left", "up"])
    frame["height"] = x.prod(axis=1) + 0.1 * rng.normal(size=len(x))
    frame["side"] = side
    classes = frame.drop(columns="height")
    frame.to_csv(folder / "plane.csv", index=False)
    # Not the same rows: data sets of the same content are one cell.
    classes[:110].to_csv(folder / "plane.csv.gz", index=False)
    classes[:100].to_parquet(folder / "plane.parquet")
    np.savez(folder / "plane.npz", x=x, y=side)
    at = rng.uniform(-3, 3, 120)
    line = pd.DataFrame({"at": at, "y": np.sin(at) + 0.2 * rng.normal(size=len(at))})
    line.to_csv(folder / "line.csv", index=False)

    labels = np.arange(80) % 2
    pixels = rng.integers(0, 128, size=(80, 12, 10, 3)).astype(np.uint8)
    pixels[labels == 1, :6] += 100  # bright above
    with zipfile.ZipFile(folder / "pictures.zip", "w") as archive:
        for number, (label, image) in enumerate(zip(labels, pixels, strict=True)):
            ending = ("png", "jpg", "bmp")[number % 3]
            path = folder / "pictures" / ("dark", "bright")[label] / f"{number}.{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
            archive.write(path, path.relative_to(folder))
    (folder / "idx").mkdir()
    for part, rows in (("train", slice(0, 60)), ("t10k", slice(60, 80))):
        arrays = {"images": pixels[rows, ..., 0], "labels": labels[rows].astype(np.uint8)}
        for (what, array), magic in zip(arrays.items(), (2051, 2049), strict=True):
            header = np.array([magic, *array.shape], dtype=">u4").tobytes()
            path = folder / "idx" / f"{part}-{what}-idx{array.ndim}-ubyte.gz"
            path.write_bytes(gzip.compress(header + array.tobytes()))


def inside(folder: Path) -> None:
    """Sweep all kinds with the Python of the fresh environment, which runs this."""
    import pmbnn as pb

    if not Path(pb.__file__).is_relative_to(sys.prefix):
        raise RuntimeError(f"{pb.__file__} is not of the fresh environment")
    os.chdir(folder)
    write_files(folder)
    (folder / "file.yaml").write_text(EXPERIMENT.format(name="file"))
    command = Path(sys.executable).with_name("pmbnn")
    print(subprocess.check_output([command, "sweep", "file.yaml"], text=True).splitlines()[-1])
    told("file.yaml", pb.load_results(folder / "results" / "file"))
    told("pb.run", pb.run(from_python()))

    (folder / "openml.yaml").write_text(OPENML)
    asked = subprocess.run(
        [command, "sweep", "openml.yaml"], capture_output=True, text=True, check=False
    )
    said = (asked.stderr or asked.stdout).strip().splitlines()
    print(f"openml: status {asked.returncode}, {len(said)} lines, the last: {said[-1]}")
    if asked.returncode != 0 and (asked.returncode, len(said)) != (2, 1):
        raise RuntimeError("\n".join(said))


def from_python() -> dict:
    """The same kinds as objects, and a frame and arrays in memory."""
    import numpy as np
    import pandas as pd

    import pmbnn as pb

    frame = pd.read_csv("plane.csv")
    x = frame[["left", "up"]].to_numpy()
    inference = pb.Inference(steps=1000, learning_rate=0.02, validation=0, restarts=2)
    rest = {
        "network": pb.Dense(hidden=(5,)),
        "prior": pb.Normal(),
        "hyperprior": pb.HalfNormal(),
        "inference": inference,
        "predict": {"draws": 50, "trace_draws": 50},
    }
    classes = [
        *(pb.Table(file=f"plane.{end}", target="side") for end in ("csv", "csv.gz", "parquet")),
        pb.Npz(file="plane.npz"),
        *(pb.Sklearn(name=name) for name in ("iris", "wine", "breast_cancer", "digits")),
        pb.Images(path="pictures"),
        pb.Images(path="pictures.zip", colour=True),
        pb.Idx(path="idx"),
        pb.Dataset.from_frame(frame.drop(columns="height"), "side", name="frame"),
        pb.Dataset.from_arrays(x, np.where(x[:, 0] > 0, "right", "left"), name="arrays"),
    ]
    numbers = [pb.Sklearn(name="diabetes"), pb.Table(file="line.csv", target="y")]
    noise = {"kind": "normal", "sd": pb.HalfNormal()}
    sweeps = [
        {"name": "classes", "dataset": classes, **rest},
        {"name": "numbers", "dataset": numbers, "likelihood": noise, **rest},
    ]
    return {"name": "python", "sweeps": sweeps}


def told(name: str, results) -> None:
    """Print how many cells there are by status, and of each how good it is and what is drawn."""
    import pmbnn as pb

    folder, counts = results.results.folder, Counter(one.status for one in results.records)
    print(f"{name}: {counts.total()} cells, {dict(counts)}")
    if problems := pb.verify(folder):
        raise RuntimeError(f"{name}: {problems}")
    for record in results.records:
        drawn = sorted(path.stem for path in (folder / "cells" / record.name).glob("*.png"))
        inputs = results.results.load_trace(record.name)["constant_data"].sizes["feature"]
        if (inputs <= 2) != bool(drawn):
            raise RuntimeError(f"{record.name}: {inputs} inputs, and drawn are {drawn}")
        score = next(one for one in ("accuracy", "rmse") if one in record.results)
        said = f"{score} {record.results[score]:.3g}; {', '.join(drawn) or 'no figure'}"
        print(f"  {record.name.split('_')[0]}: {said}")


def outside(folder: Path) -> None:
    """Build the wheel, install it alone, and run this file there."""
    uv = measuring.uv_command()
    measuring.output_of([*uv, "build", "--wheel", "--quiet", "--out-dir", str(folder / "dist")])
    (wheel,) = (folder / "dist").glob("*.whl")
    environment, work = folder / "environment", folder / "work"
    work.mkdir()
    measuring.output_of([*uv, "venv", "--quiet", "--python", "3.12", str(environment)])
    python = environment / "bin" / "python"
    install = ["pip", "install", "--quiet", "--python", str(python), f"{wheel}[parquet]"]
    measuring.output_of([*uv, *install])
    variables = measuring.caches_in(folder / "cache")
    for name in ("PMBNN_DATA", "PYTHONPATH", "VIRTUAL_ENV"):
        variables.pop(name, None)
    subprocess.run(
        [python, __file__, "--inside", work], env=variables, cwd=work, check=True, text=True
    )


def main() -> None:  # noqa: D103
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="an empty folder for environment and results")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        return inside(given.inside)
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
        return outside(given.keep.resolve())
    with tempfile.TemporaryDirectory() as folder:
        outside(Path(folder))


if __name__ == "__main__":
    main()
