"""The suite: recorded calls, in memory and on disk."""

from tapml.suite.reader import Suite
from tapml.suite.writer import SuiteWriter

__all__ = ["Suite", "SuiteWriter"]
