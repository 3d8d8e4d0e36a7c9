"""How long tapml takes on a small language model, against what a user would do by hand.

    python benchmarks/speed.py SmolLM2-135M-Instruct.Q4_1.gguf [--work DIR] [--skip-naive]

Prints machine and versions; the carving run against the plain run; a cold and a warm migration (whole commands,
start-up included) against a naive loop that exports, imports with decomposition, compiles and runs one signature after
another in one process; peak memory (of the largest process) and the suite's size.  Figures are medians where a run is
repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

PROMPT = "What is the capital of France?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a .gguf file or a Hugging Face directory of a language model")
    parser.add_argument("--work", type=Path, help="where suites and caches go (default: a temporary directory)")
    parser.add_argument("--skip-naive", action="store_true")
    parser.add_argument("--repeat", type=int, default=3, help="runs of the reference and of the recorder")
    options = parser.parse_args()
    versions = ", ".join(f"{n} {metadata.version(n)}" for n in ("torch", "apache-tvm", "transformers"))
    print(f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}; {versions}")
    work = options.work or Path(tempfile.mkdtemp(prefix="tapml-speed-"))
    work.mkdir(parents=True, exist_ok=True)
    os.environ["TAPML_CACHE"] = str(work / "cache")
    suite = work / "suite"

    carve = ["carve", options.source, "-o", str(suite), "--force", "--prompt", PROMPT, "--max-new-tokens", "16"]
    first = tapml(carve)
    again = tapml(carve)
    size = sum(f.stat().st_size for f in suite.rglob("*") if f.is_file())
    print(f"carve, whole command: {first:.1f} s with an empty cache, {again:.1f} s with the model converted")
    print(f"suite: {size / 1e6:.0f} MB with parameters embedded (aim: at most 300 MB)")
    recording(options.source, options.repeat)

    naive = None if options.skip_naive else naive_loop(suite)
    for gate in ("end", "operator"):
        shutil.rmtree(work / "cache" / "kernels", ignore_errors=True)
        cold = tapml(["migrate", str(suite), "--target", "llvm", "--gate", gate, "--restart"])
        warm = tapml(["migrate", str(suite), "--target", "llvm", "--gate", gate, "--restart"])
        print(
            f"migrate --gate {gate}, whole command: cold {cold:.1f} s, warm {warm:.1f} s, "
            f"cold / warm {cold / warm:.1f} (aim: 10)"
        )
        if naive is not None:
            print(f"  naive loop / cold {naive / cold:.2f} (aim: 4 on 2 cores)")
    shutil.rmtree(work / "cache" / "kernels", ignore_errors=True)
    cold = tapml(["test", str(suite), "--target", "llvm"])
    warm = tapml(["test", str(suite), "--target", "llvm"])
    print(f"test, whole command: cold {cold:.1f} s, warm {warm:.1f} s, cold / warm {cold / warm:.1f}")
    if naive is not None:
        print(f"  naive loop / cold {naive / cold:.2f}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    print(f"peak memory of the largest process: {peak:.2f} GB")


def tapml(arguments: list[str]) -> float:
    """Seconds that a whole tapml command takes; stops the benchmark when it does not succeed."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "tapml.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode:
        sys.exit(f"tapml {' '.join(arguments)} gave {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return seconds


def recording(source: str, repeat: int) -> None:
    """The recording run against the plain run, both in this process, in turn."""
    from tapml.carving.recorder import Recorder
    from tapml.carving.sources import find_source, load_source

    reference = load_source(find_source(source, prompts=[PROMPT], max_new_tokens=16))
    reference.run()
    plain, recorded = [], []
    for _ in range(repeat):
        begin = time.perf_counter()
        reference.run()
        plain.append(time.perf_counter() - begin)
        recorder = Recorder(reference.model)
        begin = time.perf_counter()
        reference.run(recorder)
        recorder.finish()
        recorded.append(time.perf_counter() - begin)
    ratio = statistics.median(r / p for r, p in zip(recorded, plain, strict=True))
    print(
        f"reference run {statistics.median(plain):.2f} s, recording run {statistics.median(recorded):.2f} s, "
        f"ratio {ratio:.2f} (aim: at most 2.5)"
    )


NAIVE = r"""
import json, sys, time, warnings
warnings.simplefilter("ignore")
import torch, tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program
from tapml.suite.call import decode_arguments, resolve_operator
from tapml.suite.reader import Suite

suite = Suite.open(sys.argv[1])
target = tvm.target.Target("llvm")
done, failed, begin = 0, {}, time.perf_counter()
for record in suite.signatures:
    if record.kind != "compute":
        continue
    case = suite.case(record.cases[0])
    operator = resolve_operator(record.signature.operator)

    class Call(torch.nn.Module):
        def forward(self, *tensors):
            args, kwargs = decode_arguments(record.signature.template, tensors)
            return operator(*args, **kwargs)

    try:
        tensors = tuple(t.clone() for t in case.tensors)
        exported = torch.export.export(Call(), tensors)
        module = from_exported_program(exported, run_ep_decomposition=True)
        machine = relax.VirtualMachine(tvm.compile(module, target), tvm.cpu())
        machine["main"](*[tvm.runtime.tensor(t.contiguous().numpy()) for t in case.tensors])
        done += 1
    except Exception as error:
        failed[str(record.signature)] = type(error).__name__
print(json.dumps({"seconds": time.perf_counter() - begin, "done": done, "failed": len(failed)}))
"""


def naive_loop(suite: Path) -> float:
    """Seconds of the naive loop, without its imports; numbers are not even compared in it."""
    done = subprocess.run([sys.executable, "-c", NAIVE, str(suite)], capture_output=True, text=True, check=False)
    try:
        result = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        sys.exit(f"the naive loop ended with {done.returncode}: {done.stderr[-2000:]}")
    print(f"naive loop: {result['seconds']:.1f} s, {result['done']} signatures ran, {result['failed']} did not")
    return float(result["seconds"])


if __name__ == "__main__":
    main()
