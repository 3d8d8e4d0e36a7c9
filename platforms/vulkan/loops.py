"""How often a thread goes round the loops of a kernel in TVM's OpenCL C.

Mesa's llvmpipe (lavapipe, and wgpu on top of it) leaves every loop once a thread has gone round 65,535 times in all loops
together, silently and with wrong results: LP_MAX_TGSI_LOOP_ITERATIONS in gallivm/lp_bld_limits.h, seen in Mesa 22.3.
"""

from __future__ import annotations

import re

_LOOP = re.compile(r"for \(\w+ (\w+) = (-?\d+); \1 < (-?\d+); (?:\+\+\1|\1\+\+|\1 \+= (\d+))\) \{\s*$")


def count_iterations(source: str) -> int:
    """Iterations of all loops of one thread, in source with a brace at the end of the line that opens a block.

    An upper bound where all loops count to constants, since compilers unroll some and threads skip some; a loop with
    another condition counts as if it were none.
    """
    total, factors = 0, [1]
    for line in source.splitlines():
        text = line.split("//")[0].strip()
        opened, closed = text.count("{"), text.count("}")
        if text.startswith("}"):  # "} else {" closes before it opens
            factors.pop()
            closed -= 1
        loop = _LOOP.search(text)
        if loop:
            times = -(-(int(loop[3]) - int(loop[2])) // int(loop[4] or 1))
            factors.append(factors[-1] * max(times, 0))
            total += factors[-1]
            opened -= 1
        for _ in range(opened):
            factors.append(factors[-1])
        for _ in range(closed):
            factors.pop()
    return total
