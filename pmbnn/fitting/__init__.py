"""What a worker does to a job: its cells fitted together, each evaluated, traced and stored.

`run_job` does all of it; `fit_job` or `sample_job`, `evaluate` and `build_trace` are its steps.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "evaluation": ["Evaluation", "evaluate"],
        "fit": ["fit_job"],
        "inferred": ["InferredCell"],
        "job": ["run_job"],
        "programs": ["GroupPrograms"],
        "sampling": ["sample_job"],
        "selection": ["Selection"],
        "tasks": ["CellTask", "JobTask"],
        "trace": ["build_trace"],
    },
)
