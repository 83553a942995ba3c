"""PyTensor graphs as fast XLA programs: tricks that pay, fenced in here.

Each file names its gain and the command that measures it. Gains on large networks are in units of
a deterministic step of the dense network with 478,410 parameters at batch 128; they come from
"Where the time of a large step goes" in ``benchmarks/README.md``.
"""
