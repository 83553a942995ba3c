"""Jobs, from the process that runs them to what is stored.

`workers` sends tasks to other processes, `helpers` share the work of this one, `progress` shows it.
In a worker, `job.run_job` fits the cells of a job together, and evaluates, traces and stores each:
`fit.fit_job` or `sampling.sample_job`, `evaluation.evaluate` and `trace.build_trace` are its steps.
"""
