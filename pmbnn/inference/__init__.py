"""Fitting: a model becomes graphs of one flat vector, an ELBO, and a compiled loop."""
