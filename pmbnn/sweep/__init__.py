"""A whole sweep: jobs out to worker processes, records back, figures and tables written."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submod_attrs={"stages": ["Outcome", "run", "run_experiment"]}
)
