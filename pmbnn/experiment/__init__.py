"""Experiment files: read, checked, expanded into cells, and planned; nothing here is fitted."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "cells": ["Cell", "Experiment", "cell_label", "short_name", "spec_label"],
        "expand": ["Sweep"],
        "load": ["check_data", "load_experiment", "resolved", "resolved_text"],
        "plan": [
            "Job",
            "group_key",
            "identity",
            "jobs",
            "search_cells",
            "print_plan",
            "settings_digest",
        ],
        "selection": ["select_cells"],
        "plugins": ["load_plugins", "register", "trusting"],
        "yaml_file": ["parse_yaml", "read_yaml", "yaml_text"],
    },
)
