"""The engines an experiment file can name."""

from pmbnn.inference.compiled import CompiledEngine
from pmbnn.inference.pymc_reference import PymcEngine

ENGINES = {"compiled": CompiledEngine, "pymc": PymcEngine}
