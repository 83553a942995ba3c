"""Contracts of one's own parts, for their tests: ``check_prior(MyPrior)`` and the like.

Each check takes a class, whose defaults it then uses, or specifications; it raises
``AssertionError`` with what is wrong. PyMC graphs are interpreted: nothing is compiled.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
