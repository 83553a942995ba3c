"""Simulation-based calibration (SBC): test posterior draws by simulated data of known truths.

`plan` says which cells are calibrated, `simulate` draws truths, simulates and fits data and ranks
the truths, `ranks` compares the ranks with uniform ones, `store` keeps them, `table` and `figure`
show them, and `run` does all of it on worker processes.

References
----------
Talts et al. (2018), Validating Bayesian Inference Algorithms with Simulation-Based Calibration;
Modrák et al. (2023), Simulation-Based Calibration Checking for Bayesian Computation: The Choice of
Test Quantities Shapes Sensitivity; Yao et al. (2018), Yes, but Did It Work?: Evaluating Variational
Inference, section 3 (the same of variational approximations); Säilynoja, Bürkner and Vehtari
(2022), Graphical test for discrete uniformity and its applications in goodness-of-fit evaluation
and multiple sample comparison.
"""
