"""A sweep on a Dask cluster: jobs are sent to its workers, and their records come back.

`coordinator` runs beside the sweep and connects to the cluster, `jobs` submits jobs and stores what
comes back, and `worker` is what a Dask worker runs, with the process that it runs jobs in. Nothing
here is imported unless a cluster is named.
"""
