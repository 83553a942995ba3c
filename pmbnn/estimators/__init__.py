"""Networks as scikit-learn's estimators."""
