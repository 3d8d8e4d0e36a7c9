"""The one family of errors that a user of tapml meets.

Every error states what was expected, what was found and (as ``hint``) what to do about it.  A numerical mismatch is a
result (see :mod:`tapml.numerics.verdict`), never an exception.
"""

from __future__ import annotations


class TapmlError(Exception):
    """Base of all errors raised on purpose.

    ``message`` is one sentence: what was expected and what was found.  ``hint`` says what to do; it may be empty.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(TapmlError):
    """The request itself cannot be met: a missing source, a bad option, an output that already exists."""


class ExtensionError(UsageError):
    """A file of the user that registers converters cannot be loaded."""


class SuiteError(TapmlError):
    """A suite on disk is damaged, foreign, or of another version."""


class UnsupportedError(TapmlError):
    """An operator, argument or dtype for which there is no way to the target (yet)."""


class MissingFeatureError(UnsupportedError):
    """The device lacks a feature that the operator needs (half precision, say): no fault of the candidate."""


class CompileError(TapmlError):
    """A module was built, but the target's compiler refused it."""


class DeviceError(TapmlError):
    """A device is missing, or failed while executing a kernel."""
