"""The judgement of a candidate on a case: a value, with its figures and one sentence in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tapml.suite.call import Json


@dataclass(frozen=True)
class ResultVerdict:
    """The judgement of one result (``out0``, ``arg2``, ...) of a call.

    ``code`` names the rule that decided (``within-reference-error``, ``within-floor``, ``exact``, ``error-too-large``,
    ``nonfinite-pattern``, ``integer-mismatch``, ``shape``, ``dtype``, ``absorbed-overflow``,
    ``better-than-reference``, ...). ``figures``: max abs and rel error with index and both values, rmse of candidate
    and reference, ulp, cosine, sqnr_db, bias, worst channel, the floors, ``smallest_rtol`` and ``smallest_atol`` that
    would have passed, headroom.
    """

    name: str
    passed: bool
    code: str
    explanation: str
    figures: dict[str, Json] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The judgement of a candidate on a case: passed only if every result passed.

    ``code`` and ``explanation`` are those of the first result that failed, else of the first that is better than the
    reference, else of the first.
    """

    passed: bool
    code: str
    explanation: str
    results: tuple[ResultVerdict, ...]
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, results: Sequence[ResultVerdict], warnings: Sequence[str] = ()) -> Verdict:
        notable = [r for r in results if not r.passed] + [r for r in results if r.code == "better-than-reference"]
        worst = next(iter([*notable, *results]), None)
        if worst is None:
            return cls(False, "no-results", "the call has no result to compare", (), tuple(warnings))
        prefix = f"{worst.name}: " if len(results) > 1 else ""
        merged = (*warnings, *(w for r in results for w in r.warnings))
        return cls(worst.passed, worst.code, prefix + worst.explanation, tuple(results), merged)

    def to_json(self) -> Json:
        return {
            "passed": self.passed,
            "code": self.code,
            "explanation": self.explanation,
            "warnings": list(self.warnings),
            "results": [
                {
                    "name": r.name,
                    "passed": r.passed,
                    "code": r.code,
                    "explanation": r.explanation,
                    "figures": r.figures,
                    "warnings": list(r.warnings),
                }
                for r in self.results
            ],
        }
