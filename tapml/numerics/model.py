"""Whether a whole program, some of its operators on a target, still does what the reference does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch

from tapml.suite.call import Json, dtype_name

MODEL_RTOL = {"float64": 1e-9, "float32": 1e-4, "float16": 3e-2, "bfloat16": 2e-1}
"""Largest root-mean-square error of a floating output, relative to the output's own root mean square.

Room for rounding noise to grow through some dozens of layers: about 1,700 unit round-offs of float32 and 50 of the 16-bit
formats.  Sound migrations of small language models show 1e-6 in float32."""

MODEL_KL = {"float64": 1e-12, "float32": 1e-6, "float16": 1e-2, "bfloat16": 5e-2}
"""Largest mean Kullback-Leibler divergence (nats) of next-token distributions from the reference's."""


@dataclass(frozen=True)
class OutputComparison:
    """One output of the program.  ``figures`` depend on what it is: relative rms and max error, KL, top-1 agreement."""

    name: str
    accepted: bool
    explanation: str
    figures: dict[str, float]


@dataclass(frozen=True)
class ModelComparison:
    """All outputs; accepted when each is."""

    accepted: bool
    explanation: str
    outputs: tuple[OutputComparison, ...]

    def to_json(self) -> Json:
        return asdict(self)


def compare_outputs(reference: Mapping[str, torch.Tensor], candidate: Mapping[str, torch.Tensor]) -> ModelComparison:
    """Judge outputs by name.

    Integer outputs are equal, with one exception: once generated tokens (``tokens``, [batch, steps]) differ at a step where
    the reference's ``logits`` ([steps, batch, vocabulary]) had two candidates closer than the error there, what follows is
    another text and is not compared.  Floating outputs keep within :data:`MODEL_RTOL`; logits within :data:`MODEL_KL` as well.
    NaN and infinities stand where the reference has them.
    """
    if set(reference) != set(candidate):
        text = f"expected the outputs {', '.join(sorted(reference))}, found {', '.join(sorted(candidate)) or 'none'}"
        return ModelComparison(False, text, ())
    steps, flip = _comparable_steps(reference, candidate)
    outputs = []
    for name, expected in reference.items():
        found = candidate[name]
        if expected.shape != found.shape or expected.dtype != found.dtype:
            wanted, got = (f"{dtype_name(t.dtype)}{list(t.shape)}" for t in (expected, found))
            text = f"expected {wanted}, found {got}"
            outputs.append(OutputComparison(name, False, text, {}))
        elif name == "tokens" and flip is not None:
            outputs.append(flip)
        elif expected.is_floating_point():
            limit = steps if name == "logits" else None
            outputs.append(_compare_floats(name, expected[:limit], found[:limit]))
        else:
            outputs.append(_compare_exact(name, expected, found))
    worst = next((o for o in outputs if not o.accepted), outputs[0])
    told = outputs if worst.accepted else [worst]
    return ModelComparison(worst.accepted, "; ".join(f"{o.name}: {o.explanation}" for o in told), tuple(outputs))


def _compare_exact(name: str, expected: torch.Tensor, found: torch.Tensor) -> OutputComparison:
    different = int((expected != found).sum())
    text = "equal" if not different else f"{different} of {expected.numel()} values differ"
    return OutputComparison(
        name, not different, text, {"different": float(different), "count": float(expected.numel())}
    )


def _comparable_steps(
    reference: Mapping[str, torch.Tensor], candidate: Mapping[str, torch.Tensor]
) -> tuple[int | None, OutputComparison | None]:
    """(number of steps whose logits may be compared, comparison of the tokens if they differ by a near tie)."""
    names = {"tokens", "logits"}
    if not names <= set(reference) or reference["tokens"].shape != candidate["tokens"].shape:
        return None, None
    tokens, other = reference["tokens"], candidate["tokens"]
    logits, moved = reference["logits"].double(), candidate["logits"].double()
    if tokens.dim() != 2 or logits.dim() != 3 or logits.shape != moved.shape or logits.shape[0] != tokens.shape[1]:
        return None, None
    wrong = (tokens != other).any(dim=0).nonzero()
    if not len(wrong):
        return None, None
    step = int(wrong[0])
    error = (logits[step] - moved[step]).abs().amax(dim=-1)
    top = logits[step].topk(2, dim=-1).values
    gap = top[:, 0] - top[:, 1]
    flipped = tokens[:, step] != other[:, step]
    excused = bool((gap[flipped] <= 2 * error[flipped]).all())
    text = (
        f"token {step} differs where the reference's two best are {float(gap[flipped].min()):.2g} apart, "
        f"{'within' if excused else 'beyond'} twice the error of {float(error[flipped].max()):.2g}"
    )
    return step + 1, OutputComparison("tokens", excused, text, {"first_different_step": float(step)})


def _compare_floats(name: str, expected: torch.Tensor, found: torch.Tensor) -> OutputComparison:
    dtype = _precision(expected)
    a, b = expected.double(), found.double()
    finite = torch.isfinite(a)
    same_kind = torch.equal(finite, torch.isfinite(b)) and torch.equal(a.isnan(), b.isnan())
    if not same_kind or not torch.equal(a[~finite].nan_to_num(), b[~finite].nan_to_num()):
        return OutputComparison(name, False, "NaN or infinities where the reference has none, or the reverse", {})
    scale = _rms(a[finite])
    relative = _rms(a[finite] - b[finite]) / scale if scale else float(_rms(b[finite]) > 0)
    figures = {
        "relative_rms_error": relative,
        "max_abs_error": float((a[finite] - b[finite]).abs().max()) if finite.any() else 0.0,
    }
    limit = MODEL_RTOL[dtype]
    accepted = relative <= limit
    text = f"relative rms error {relative:.2g} (at most {limit:.2g})"
    if name == "logits" and expected.dim() == 3 and expected.shape[-1] > 1:
        log_p, log_q = a.log_softmax(-1), b.log_softmax(-1)
        kl = float((log_p.exp() * (log_p - log_q)).nansum(-1).mean())
        top5 = (a.topk(min(5, a.shape[-1])).indices == b.topk(min(5, a.shape[-1])).indices).double().mean()
        figures |= {
            "kl": kl,
            "top1_agreement": float((a.argmax(-1) == b.argmax(-1)).double().mean()),
            "top5_agreement": float(top5),
        }
        accepted = accepted and kl <= MODEL_KL[dtype]
        text += f", KL {kl:.2g} (at most {MODEL_KL[dtype]:.2g}), top-1 agreement {figures['top1_agreement']:.0%}"
    return OutputComparison(name, accepted, text, figures)


_ENOUGH_VALUES = 32


def _precision(expected: torch.Tensor) -> str:
    """The dtype whose bounds apply: the narrowest that holds every value.

    transformers hands out the logits of a 16-bit model as float32; they are no more exact for it.  A tensor of few distinct
    values (zeros, say) tells nothing and keeps its own dtype.
    """
    distinct = torch.unique(expected).numel()
    if expected.dtype == torch.float32 and expected.isfinite().all() and distinct >= _ENOUGH_VALUES:
        for dtype in (torch.bfloat16, torch.float16):
            if torch.equal(expected.to(dtype).to(torch.float32), expected):
                return dtype_name(dtype)
    return dtype_name(expected.dtype)


def _rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt()) if values.numel() else 0.0
