"""A sweep on a Dask cluster: jobs are sent to its workers, and their records come back.

`coordinator` runs beside the sweep and connects to the cluster, `jobs` submits jobs and stores what
comes back, `worker` runs in each Dask worker, and `child` in the process that a worker runs jobs
in. Nothing here is imported unless a cluster is named.
"""
