"""Imported once by the process that workers are forked from, so that a new worker is ready in milliseconds.

Nothing here may compute: threads do not survive a fork.
"""

import tapml.lowering.converters.all
import tapml.migration.job
import tapml.numerics.judge
import tapml.suite.reader  # noqa: F401
