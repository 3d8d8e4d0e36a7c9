"""``tapml carve``: parse, carve, show the table."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(
    epilog="""\
\b
Examples:
  tapml carve mypackage.model:factory -o suite
  tapml carve ./all-MiniLM-L6-v2 -o suite --prompt "A cat sat." --prompt "The dog barked at it."
  tapml carve SmolLM2-135M-Instruct.Q4_1.gguf -o suite --prompt "What is the capital of France?" --max-new-tokens 16
  tapml carve exported.pt2 -o suite --inputs inputs.safetensors --dtype float16
""",
)
@click.argument("source")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Directory of the suite to write.")
@click.option("--prompt", "prompts", multiple=True, help="Text for a language model; several make a padded batch.")
@click.option("--inputs", type=click.Path(path_type=Path), help="Keyword inputs: a .npz or .safetensors file.")
@click.option("--max-new-tokens", type=click.IntRange(1), help="Tokens to generate; exactly as many.  [default: 16]")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16", "bfloat16"]),
    help="Dtype of the model's and the inputs' floats.  [default: the source's own]",
)
@click.option("--keep", type=click.IntRange(1), default=3, show_default=True, help="Cases to keep of each signature.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of PyTorch's random numbers.")
@click.option(
    "--params",
    type=click.Choice(["embed", "reference"]),
    default="embed",
    show_default=True,
    help="Store parameters in the suite, or refer to the checkpoint's file with a hash.",
)
@click.option("--allow-nondeterministic", is_flag=True, help="Go on when two runs of the reference differ.")
@click.option("--force", is_flag=True, help="Replace a suite that exists.")
def command(
    source: str,
    output: Path,
    prompts: tuple[str, ...],
    inputs: Path | None,
    max_new_tokens: int | None,
    dtype: str | None,
    keep: int,
    seed: int,
    params: str,
    allow_nondeterministic: bool,
    force: bool,
) -> None:
    """Record a PyTorch program's operator calls as a suite of test cases.

    SOURCE is a factory (package.module:name or file.py:name, which returns (model, args), (model, args, kwargs) or a
    function without arguments), a Hugging Face model directory, a .gguf file, or a .pt2 exported program.

    The program runs twice, and has to give the same outputs.  Of each signature (operator, shapes, dtypes, strides,
    arguments) the first call is kept, and those under most numeric stress.
    """
    from tapml.carving.carve import carve
    from tapml.carving.sources import find_source
    from tapml.errors import UsageError
    from tapml.migration.journal import in_use
    from tapml.report.progress import carve_progress
    from tapml.report.terminal import print_carve

    busy = in_use(output) if force else None
    if busy is not None:
        raise UsageError(f"{output} is being {busy}", hint="wait for it, or choose another output")
    spec = find_source(source, prompts=prompts, inputs=inputs, max_new_tokens=max_new_tokens, dtype=dtype, seed=seed)
    try:
        with carve_progress() as (progress, note):
            summary = carve(
                spec,
                output,
                keep=keep,
                params="reference" if params == "reference" else "embed",
                allow_nondeterministic=allow_nondeterministic,
                force=force,
                progress=progress,
                note=note,
            )
    except KeyboardInterrupt as stop:
        stop.hint = "nothing was written; run the same command again"  # type: ignore[attr-defined]
        raise
    print_carve(summary)
