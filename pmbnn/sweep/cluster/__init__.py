"""A sweep beyond one machine: jobs go out to the workers of a Dask cluster, records come back.

``coordinator`` has a ``turn`` of jobs done by a ``crew`` of workers: ``placement`` says which of
them gets what, ``parcels`` is what travels, and ``arrivals`` stores what comes back. ``worker``
runs in a worker of Dask, and has jobs done by processes that ``child`` is the life of. ``data``
carries rows that a worker cannot read itself. Nothing here is imported unless a cluster is named.
"""
