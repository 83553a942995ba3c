"""Claims about priors and hyperpriors, tested in numbers on stored results.

The four claims are those of the report that this project rebuilds: a Laplace prior leaves all
but two weights of the last layer about zero and a Cauchy prior does not; uncertainty is highest
near the true boundary between the classes; hyperpriors almost always help, most on noisy data;
and they find appropriate scales for Normal and Laplace.

`pmbnn.claims.rows.claim_rows` gives the rows, ``python -m pmbnn.claims RESULTS...`` prints them.
"""
