"""Work on a job: its cells fitted together, each evaluated, traced and stored.

`job.run_job` does all of it; `fit.fit_job` or `sampling.sample_job`, `evaluation.evaluate` and
`trace.build_trace` are its steps.
"""
