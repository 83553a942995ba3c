"""Experiment suite for Bayesian neural networks written as PyMC models."""
