"""Errors of an experiment file: those of settings, which `pmbnn.spec.errors` words."""

from pmbnn.spec import validated
from pmbnn.spec.errors import REQUIREMENTS, ConfigError, check_keys, must, must_be_one_of, show

__all__ = [
    "REQUIREMENTS",
    "ConfigError",
    "check_keys",
    "must",
    "must_be_one_of",
    "show",
    "validated",
]
