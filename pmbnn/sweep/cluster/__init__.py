"""A sweep beyond one machine: jobs go out to the workers of a Dask cluster, records come back.

``parcels`` is what travels, ``coordinator`` sends it and ``placement`` says where to; ``worker``
runs in a worker of Dask, and has jobs done by processes that ``child`` is the life of. ``data``
carries rows that a worker cannot read itself. Nothing here is imported unless a cluster is named.
"""
