"""References from Hugging Face model directories and GGUF files.  Nothing here touches the network."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import io
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
import torch

from tapml.carving.inputs import read_inputs
from tapml.carving.reference import DTYPES, Outputs, Reference, cast_floats
from tapml.errors import UsageError
from tapml.lock import exclusive

if TYPE_CHECKING:
    from tapml.carving.sources import Note, SourceSpec

INSTALL = "pip install 'tapml[hf]'"


def load_directory(spec: SourceSpec, note: Note) -> Reference:
    """A model directory: ``config.json``, safetensors, and a tokenizer if there is one."""
    return _load(spec, Path(spec.location), f"model directory {spec.location}", note)


def load_gguf(spec: SourceSpec, note: Note) -> Reference:
    """A GGUF file.  Converting it takes half a minute, so that is done once, into the cache."""
    return _load(spec, convert_gguf(Path(spec.location), note), f"GGUF file {spec.location}", note)


def cache_directory() -> Path:
    """Where tapml keeps what can be made again: ``TAPML_CACHE``, or the user's cache directory."""
    given = os.environ.get("TAPML_CACHE")
    return Path(given) if given else platformdirs.user_cache_path("tapml")


def convert_gguf(path: Path, note: Note) -> Path:
    """The model directory, float32, that a GGUF file stands for; made if it is not in the cache.

    It is named after the SHA-256 of the file and the version of transformers, which does the conversion.
    """
    transformers = _transformers()
    for package in ("gguf", "accelerate"):
        _require(package)
    if not path.is_file():
        raise UsageError(f"no file {path}", hint="put it back, or carve from where it is now")
    with open(path, "rb") as file:
        if file.read(4) != b"GGUF":
            raise UsageError(f"{path} is no GGUF file: its first bytes are not GGUF", hint="download it again")
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _sha256(file)
    target = cache_directory() / "gguf" / f"{digest[:32]}-transformers-{transformers.__version__}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(target.with_name(f"{target.name}.lock"), wait=True):
            if target.is_dir():
                return target
            for left in target.parent.glob(f".{target.name}-*"):  # by a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            note(f"converting {path.name} (once)")
            temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
            try:
                _convert(transformers, path, temporary)
                temporary.replace(target)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise UsageError(
            f"cannot keep the converted {path.name} in {target.parent}: {error.strerror or error}",
            hint="set TAPML_CACHE to a directory with enough space",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            target.parent.rmdir()  # if nothing came of it
    return target


def _convert(transformers: Any, path: Path, target: Path) -> None:
    with _quiet(transformers):
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                path.parent, gguf_file=path.name, dtype=torch.float32, local_files_only=True
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                path.parent, gguf_file=path.name, local_files_only=True
            )
        except Exception as error:  # its readers raise whatever a damaged file makes them raise
            raise UsageError(
                f"cannot read the GGUF file {path}: {_brief(error)}",
                hint="it may be cut off: compare its size and hash with the original's, and download it again; or its "
                "architecture is unknown to transformers",
            ) from error
        # transformers 5 refuses to save a model that came from GGUF, though its weights are dequantized by then
        model.hf_quantizer = None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        try:
            model.save_pretrained(target)
            tokenizer.save_pretrained(target)
        except Exception as error:  # safetensors has its own error for a full disk
            raise UsageError(
                f"cannot keep the converted {path.name} in {target.parent}: {_brief(error)}",
                hint="set TAPML_CACHE to a directory with enough space",
            ) from error


def _load(spec: SourceSpec, directory: Path, description: str, note: Note) -> Reference:
    transformers = _transformers()
    if not (directory / "config.json").is_file():
        raise UsageError(f"no model directory at {directory}", hint="put it back, or carve from where it is now")
    dtype = DTYPES[spec.dtype] if spec.dtype else None
    note(f"loading {Path(spec.location).name}")
    with _quiet(transformers):
        model = _load_model(transformers, directory, dtype).eval()
        tokenizer = None if spec.inputs else _load_tokenizer(transformers, directory)
    inputs = read_inputs(spec.inputs) if spec.inputs else _tokenize(tokenizer, model, spec.prompts)
    inputs = cast_floats(inputs, model.dtype)
    checkpoint = _checkpoint_files(directory)
    if not model.can_generate():
        _check_names(model, inputs, spec.inputs)
        return Reference(
            description=description,
            call=lambda given: model(**given),
            inputs=inputs,
            model=model,
            seed=spec.seed,
            checkpoint=checkpoint,
        )
    steps = spec.max_new_tokens
    options = _greedy(model, tokenizer, steps)

    def select(made: Any) -> Outputs:
        return {"tokens": made.sequences[:, -steps:], "logits": torch.stack(made.logits)}

    def to_text(outputs: Outputs) -> str:
        return "\n".join(tokenizer.batch_decode(outputs["tokens"])) if tokenizer is not None else ""

    return Reference(
        description=description,
        call=lambda given: model.generate(**given, **options),
        select=select,
        inputs=inputs,
        model=model,
        seed=spec.seed,
        to_text=to_text,
        checkpoint=checkpoint,
    )


def _check_names(model: Any, inputs: Mapping[str, Any], file: str) -> None:
    """Raise :class:`UsageError` for an input that ``forward`` does not name: models ignore such without a word."""
    named = [n for n, p in inspect.signature(model.forward).parameters.items() if p.kind is not p.VAR_KEYWORD]
    unknown = [name for name in inputs if name not in named]
    if unknown and file:
        raise UsageError(
            f"{type(model).__name__} takes no {', '.join(unknown)}, which {file} has",
            hint=f"it takes {', '.join(named[:12])}",
        )


def _greedy(model: Any, tokenizer: Any, steps: int) -> dict[str, Any]:
    """Options of ``generate``: exactly ``steps`` tokens, the likeliest each time, whatever the model's defaults are."""
    pad = getattr(tokenizer, "pad_token_id", None)
    if pad is None:
        pad = model.generation_config.pad_token_id
    return {
        "max_new_tokens": steps,
        "do_sample": False,
        "num_beams": 1,
        "temperature": None,
        "top_k": None,
        "top_p": None,
        "eos_token_id": None,  # a run of fixed length: the end of the sequence is a token as any other
        "pad_token_id": 0 if pad is None else pad,
        "return_dict_in_generate": True,
        "output_logits": True,
    }


def _load_model(transformers: Any, directory: Path, dtype: torch.dtype | None) -> Any:
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(directory, **options)
        cls = None
        for name in config.architectures or ():
            cls = cls or getattr(transformers, name, None)
        if cls is None:
            families = (transformers.AutoModelForCausalLM, transformers.AutoModelForSeq2SeqLM, transformers.AutoModel)
            cls = next((f for f in families if type(config) in f._model_mapping), transformers.AutoModel)
        model, loading = cls.from_pretrained(
            directory,
            config=config,
            dtype=dtype or "auto",
            local_files_only=True,
            output_loading_info=True,
        )
    except Exception as error:  # damaged safetensors, unknown architectures, custom code: each reader has its own
        raise UsageError(
            f"cannot load the model in {directory}: {_brief(error)}",
            hint="the files may be damaged or incomplete, or the model may need code of its own: write a factory then",
        ) from error
    missing = sorted(loading["missing_keys"]) + sorted(str(k) for k in loading.get("mismatched_keys") or ())
    if missing:
        raise UsageError(
            f"the checkpoint in {directory} lacks {len(missing)} parameters of {type(model).__name__}: "
            f"{', '.join(missing[:3])}{' ...' if len(missing) > 3 else ''}",
            hint="they would be random: complete the checkpoint, or correct `architectures` in config.json",
        )
    return model


def _load_tokenizer(transformers: Any, directory: Path) -> Any:
    hint = "add the tokenizer's files, or give --inputs FILE with the tensors that the model takes"
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        raise UsageError(f"cannot load a tokenizer from {directory}: {_brief(error)}", hint=hint) from error
    files = sorted(set((getattr(tokenizer, "vocab_files_names", None) or {}).values()))
    if files and not any((directory / name).is_file() for name in files):  # transformers 5 makes an empty one up
        raise UsageError(f"{directory} has no tokenizer: none of {', '.join(files)} is there", hint=hint)
    return tokenizer


def _tokenize(tokenizer: Any, model: Any, prompts: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Prompts -> the model's keyword tensors, ``int64[batch, length]`` each, padded on the side the model needs."""
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    options: dict[str, Any] = {"return_tensors": "pt", "padding": len(prompts) > 1}
    if model.can_generate() and not model.config.is_encoder_decoder:
        tokenizer.padding_side = "left"
    if model.can_generate() and tokenizer.chat_template:
        chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
        encoded = tokenizer.apply_chat_template(chats, add_generation_prompt=True, return_dict=True, **options)
    else:
        encoded = tokenizer(list(prompts), **options)
    return dict(encoded)


def _checkpoint_files(directory: Path) -> dict[str, Path]:
    """Name of each tensor in the directory's safetensors -> its file; empty when the index is not to be had."""
    from safetensors import SafetensorError, safe_open

    found: dict[str, Path] = {}
    try:
        index = directory / "model.safetensors.index.json"
        if index.is_file():
            for name, file in json.loads(index.read_text(encoding="utf-8"))["weight_map"].items():
                found[name] = directory / file
        elif (directory / "model.safetensors").is_file():
            with safe_open(directory / "model.safetensors", framework="pt") as file:
                found = dict.fromkeys(file.keys(), directory / "model.safetensors")
    except (OSError, ValueError, KeyError, SafetensorError):
        return {}
    return found


# -- the environment --------------------------------------------------------------------------------------------------


def _transformers() -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read once, when huggingface_hub is imported
    _require("transformers")
    import transformers

    return transformers


def _require(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UsageError(f"this source needs the package {package}, which is not installed", hint=INSTALL)


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No progress bars, no advice: what matters is raised."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _brief(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}{'...' if len(text) > 300 else ''}"


def _sha256(file: Any) -> str:
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()
