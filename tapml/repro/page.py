"""A page that reproduces a failure when it is opened: a platform's template with the plan, sources and tensors in it."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence

import numpy
import torch
from numpy.typing import NDArray

from tapml.kernels.executable import encode
from tapml.kernels.plan import Buffer, Plan
from tapml.repro.calls import call_text
from tapml.repro.failure import Failure
from tapml.repro.subject import Memory, flat
from tapml.suite.call import Json

_CALL = "    return "


def page_text(template: str, failure: Failure, results: Sequence[Json]) -> str:
    """The page.  ``results``: name and ``limit`` (error that is still rounding) of each, as in ``bundle.json``."""
    listing = failure.finding.listing
    assert listing is not None and listing.plan is not None
    plan = Plan.from_json(listing.plan)
    call = next(line for line in call_text(failure.subject.case().signature).splitlines() if line.startswith(_CALL))
    exact = dict(failure.finding.exact)
    title = f"{failure.subject.operator} on {failure.target}: {failure.kind}"
    data = {
        "title": title,
        "explanation": failure.finding.explanation,
        "failure": failure.kind.to_json(),
        "changing": len(failure.kinds) > 1,
        "device": f"{failure.device.name} ({failure.device.description})",
        "call": call.removeprefix(_CALL),
        "versions": ", ".join(f"{name} {version}" for name, version in failure.versions.items()),
        "plan": listing.plan,
        "sources": {name: text.decode() for name, text in listing.files.items()},
        "inputs": {str(i): _text(b) for i, b in _inputs(plan, failure.subject.tensors).items()},
        "results": [
            {
                "name": name,
                "limit": r["limit"],
                "expected": _expected(plan, place, memory),
                "exact": _expected(plan, place, exact[name]) if name in exact else "",
            }
            for place, (r, (name, memory)) in enumerate(zip(results, failure.finding.expected, strict=True))
        ],
    }
    return template.replace("$TITLE", html.escape(title)).replace("$BUNDLE", json.dumps(data).replace("</", "<\\/"))


def _inputs(plan: Plan, tensors: Sequence[Memory]) -> dict[int, NDArray[numpy.uint8]]:
    """The bytes of each buffer that holds parameters."""
    found: dict[int, NDArray[numpy.uint8]] = {}
    for number, (index, offset, memory) in enumerate(
        zip(plan.parameters, plan.parameter_offsets, tensors, strict=True)
    ):
        buffer = plan.buffers[index]
        data = encode(flat(memory.tensor()), buffer, f"argument {number}")
        if index not in found:
            found[index] = numpy.zeros(buffer.nbytes, numpy.uint8)
        found[index][offset : offset + data.size] = data
    return found


def _expected(plan: Plan, place: int, memory: Memory) -> str:
    """A result of PyTorch's, or the float64 one, as the device would have it in memory."""
    index, order = plan.results[place], plan.orders[place]
    if index is None or order is None:
        return ""
    buffer: Buffer = plan.buffers[index]
    written = memory.tensor().permute(order).clone(memory_format=torch.contiguous_format).reshape(-1)
    return _text(encode(written, buffer, "a result"))


def _text(data: NDArray[numpy.uint8]) -> str:
    return base64.b64encode(data.tobytes()).decode()
