"""The results folder: written whole, checked, read back, and turned into tables."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "present": ["StorageError"],
        "loading": [
            "ExperimentResults",
            "StoredCell",
            "load_results",
            "restore_cell",
            "sample_posterior",
        ],
        "integrity": ["Problem", "verify"],
        "prune": ["Superseded", "prune"],
        "record": ["CellRecord"],
        "store": ["Results", "ResultsError", "FolderBusyError", "writing"],
    },
)
