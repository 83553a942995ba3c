"""Prior predictive checks: what networks predict before they have seen any data.

`plan` lists the priors of an experiment, `evaluate` draws functions from a prior and computes
numbers of them for a data set, `store` keeps and tabulates the results, `figure` draws them, and
`run` does all of it on worker processes.

A prior predictive check is no cell of a sweep: nothing is inferred, there are no test scores, data
seeds share one check, and each candidate of a tuned scale has one of its own.
"""
