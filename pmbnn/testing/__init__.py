"""Checks of user-defined parts, for their tests: ``check_prior(MyPrior)``, for example.

Each check takes a class, whose defaults it uses, or a specification, and raises an
``AssertionError`` with a message. PyMC graphs are interpreted: nothing is compiled.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
