"""Experiment suite for Bayesian neural networks written as PyMC models.

    import pmbnn as pb

Everything public is a name of this package; each is loaded when it is first used, so that the
import itself is quick. `__init__.pyi` lists them for type checkers and editors.
"""

import lazy_loader

__version__ = "0.2.0.dev0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
