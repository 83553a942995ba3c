"""Contestants of the small-network benchmark: one long-lived process each."""
