"""Where a reference comes from: a factory, a Hugging Face directory, a GGUF file or an exported program."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tapml.carving.inputs import read_inputs
from tapml.carving.reference import DTYPES, Reference, cast_floats, require_evaluation_mode, user_code
from tapml.errors import UsageError
from tapml.suite.call import Json

KINDS = ("factory", "huggingface", "gguf", "exported")
NEW_TOKENS = 16
"""Tokens that a language model generates when nobody says how many."""

Note = Callable[[str], None]
"""Told in a few words what is being done when it takes long."""


@dataclass(frozen=True)
class SourceSpec:
    """Everything that says which program is the reference, on what inputs; the suite keeps it, to run it again.

    ``kind`` is one of :data:`KINDS`; ``location`` an absolute path, or ``package.module:factory``; ``directory`` is
    where relative module names are looked for.  ``inputs``: path of a ``.npz`` or ``.safetensors`` file, or empty.
    ``max_new_tokens`` concerns models that generate.  ``dtype``: one of :data:`DTYPES`, or empty for the source's own.
    """

    kind: str
    location: str
    directory: str = ""
    prompts: tuple[str, ...] = ()
    inputs: str = ""
    max_new_tokens: int = NEW_TOKENS
    dtype: str = ""
    seed: int = 0

    def to_json(self) -> Json:
        return {**asdict(self), "prompts": list(self.prompts)}

    @classmethod
    def from_json(cls, data: Json) -> SourceSpec:
        """Raises :class:`UsageError` for anything that :meth:`to_json` cannot have written."""
        types = {f.name: type(getattr(cls("factory", ""), f.name)) for f in fields(cls)}
        good = (
            isinstance(data, Mapping)
            and data.keys() == types.keys()
            and all(isinstance(data[n], list if t is tuple else t) for n, t in types.items())
            and all(isinstance(p, str) for p in data["prompts"])
            and data["kind"] in KINDS
        )
        if not good:
            raise UsageError(f"expected the description of a source, found {str(data)[:120]}")
        return cls(**{**data, "prompts": tuple(data["prompts"])})


def find_source(
    location: str,
    *,
    prompts: Sequence[str] = (),
    inputs: str | os.PathLike[str] | None = None,
    max_new_tokens: int | None = None,
    dtype: str | None = None,
    seed: int = 0,
) -> SourceSpec:
    """The spec of what ``location`` names on this machine.

    Raises :class:`UsageError` when nothing is there (saying what was tried), or an option is out of range.
    """
    if dtype and dtype not in DTYPES:
        raise UsageError(f"expected a dtype of {', '.join(DTYPES)}, found {dtype!r}")
    if max_new_tokens is not None and max_new_tokens < 1:
        raise UsageError(f"expected at least 1 new token, found {max_new_tokens}")
    if prompts and inputs:
        raise UsageError("expected prompts or a file of inputs, found both", hint="give --prompt or --inputs")
    if inputs and not os.path.isfile(inputs):
        raise UsageError(f"no file of inputs at {os.fspath(inputs)}", hint="give a .npz or .safetensors file")
    kind, place = _locate(location)
    if prompts and kind in ("factory", "exported"):
        raise UsageError(
            f"a prompt needs a source with a tokenizer, {location} has none",
            hint="leave --prompt out, and tokenize in the factory or give --inputs",
        )
    return SourceSpec(
        kind=kind,
        location=place,
        directory=os.getcwd() if kind == "factory" else "",
        prompts=tuple(prompts),
        inputs=os.path.abspath(inputs) if inputs else "",
        max_new_tokens=NEW_TOKENS if max_new_tokens is None else max_new_tokens,
        dtype=dtype or "",
        seed=seed,
    )


def load_source(spec: SourceSpec, *, note: Note | None = None) -> Reference:
    """Load the program and its inputs.

    Raises errors of :mod:`tapml.errors` for everything that can be wrong with the source: it is missing or damaged, it
    needs a package that is missing, its factory raises or returns something else.
    """
    loaders: dict[str, Callable[[SourceSpec, Note], Reference]] = {
        "factory": _load_factory,
        "huggingface": _load_huggingface,
        "gguf": _load_huggingface,
        "exported": _load_exported,
    }
    return loaders[spec.kind](spec, note or (lambda text: None))


# -- where ------------------------------------------------------------------------------------------------------------


def _locate(location: str) -> tuple[str, str]:
    path = Path(location).expanduser()
    if path.is_dir():
        if (path / "config.json").is_file():
            return "huggingface", str(path.absolute())
        raise UsageError(
            f"expected a Hugging Face model directory, found no config.json in {location}",
            hint="give the directory that save_pretrained wrote, or the snapshot directory of a download",
        )
    if path.is_file() and path.suffix in (".gguf", ".pt2"):
        return ("gguf" if path.suffix == ".gguf" else "exported"), str(path.absolute())
    module, colon, attribute = location.rpartition(":")
    if colon and attribute.isidentifier():
        if module.endswith(".py"):
            if os.path.isfile(os.path.expanduser(module)):
                return "factory", f"{os.path.abspath(os.path.expanduser(module))}:{attribute}"
            raise UsageError(
                f"no file {module}, which should have the factory {attribute}",
                hint="check the path; relative ones start at the current directory",
            )
        if module and all(part.isidentifier() for part in module.split(".")):
            return "factory", location
    if path.is_file():
        raise UsageError(
            f"expected a .gguf or .pt2 file, found {location}",
            hint="for a Python file, name the factory in it: file.py:factory",
        )
    raise UsageError(
        f"no source at {location}: tried a model directory, a .gguf file, a .pt2 file, and package.module:factory",
        hint="check the path; a Python callable is written package.module:factory or file.py:factory",
    )


# -- factory ----------------------------------------------------------------------------------------------------------

_SHOULD_RETURN = "return (model, args), (model, args, kwargs), or a callable without arguments"


def _load_factory(spec: SourceSpec, note: Note) -> Reference:
    place, _, attribute = spec.location.rpartition(":")
    module = _import(place, spec.directory)
    factory = getattr(module, attribute, None)
    if not callable(factory):
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        found = "nothing" if factory is None else type(factory).__name__
        raise UsageError(
            f"expected a callable {attribute} in {place}, found {found}",
            hint=f"it has: {', '.join(sorted(names)[:10])}" if names else "",
        )
    torch.manual_seed(spec.seed)
    with user_code(f"the factory {spec.location}"), _on_path(spec.directory):
        made = factory()
    description = f"factory {spec.location}"
    if callable(made) and not isinstance(made, torch.nn.Module):
        if spec.dtype or spec.inputs:
            raise UsageError(
                f"{spec.location} returned a callable to run as it is: dtype and inputs are its own affair",
                hint="leave --dtype and --inputs out, or return (model, args)",
            )
        model = _module_of(made)
        return Reference(description=description, call=lambda _: made(), model=model, seed=spec.seed)
    program, args, kwargs = _unpack(made, spec.location)
    if spec.inputs:
        return _from_call(spec, description, program, (), read_inputs(spec.inputs))
    return _from_call(spec, description, program, args, kwargs)


def _from_call(
    spec: SourceSpec, description: str, model: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Reference:
    dtype = DTYPES[spec.dtype] if spec.dtype else None
    module = model if isinstance(model, torch.nn.Module) else _module_of(model)
    if isinstance(model, torch.nn.Module):
        require_evaluation_mode(model)
    if module is not None and dtype is not None:
        module.to(dtype)
    inputs = cast_floats((tuple(args), dict(kwargs)), dtype)
    return Reference(
        description=description,
        call=lambda given: model(*given[0], **given[1]),
        inputs=inputs,
        model=module,
        seed=spec.seed,
    )


def _unpack(made: Any, location: str) -> tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]:
    """What a factory returned -> model, args, kwargs."""
    found = type(made).__name__
    if isinstance(made, tuple):
        found = f"a tuple of {len(made)}: {', '.join(type(m).__name__ for m in made[:4])}"
        if len(made) in (2, 3):
            model, args, kwargs = made if len(made) == 3 else (*made, {})
            if callable(model) and isinstance(args, tuple | list) and isinstance(kwargs, Mapping):
                return model, args, kwargs
    raise UsageError(f"expected the factory {location} to {_SHOULD_RETURN}; found {found}", hint=f"{_SHOULD_RETURN}")


def _module_of(program: Any) -> torch.nn.Module | None:
    """The one module that a callable is bound to, partially applied to, or closes over; ``None`` if not exactly one."""
    held: list[Any] = [program, getattr(program, "__self__", None)]
    if isinstance(program, functools.partial):
        held += [program.func, getattr(program.func, "__self__", None), *program.args, *program.keywords.values()]
    for cell in getattr(program, "__closure__", None) or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # a name that is not bound yet
            continue
    modules = {id(m): m for m in held if isinstance(m, torch.nn.Module)}
    return next(iter(modules.values())) if len(modules) == 1 else None


def _import(place: str, directory: str) -> ModuleType:
    if place.endswith(".py"):
        name = f"tapml_source_{Path(place).stem}"
        spec = importlib.util.spec_from_file_location(name, place)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses and pickle look their module up
        with user_code(place), _on_path(os.path.dirname(place)):
            spec.loader.exec_module(module)
        return module
    with user_code(f"module {place}"), _on_path(directory):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise
            raise UsageError(
                f"no module {error.name} ({directory or os.getcwd()} and the installed packages were searched)",
                hint="run from the directory that has it, or write path/to/file.py:factory",
            ) from error


@contextmanager
def _on_path(directory: str) -> Iterator[None]:
    """The user's directory is importable while the user's code is loaded."""
    sys.path.insert(0, directory)
    try:
        yield
    finally:
        if directory in sys.path:
            sys.path.remove(directory)


# -- others -----------------------------------------------------------------------------------------------------------


def _load_huggingface(spec: SourceSpec, note: Note) -> Reference:
    from tapml.carving.huggingface import load_directory, load_gguf

    if not spec.prompts and not spec.inputs:
        raise UsageError(
            f"{spec.location} needs something to run on",
            hint='give --prompt "some text", or --inputs FILE with the tensors that its forward takes',
        )
    return load_gguf(spec, note) if spec.kind == "gguf" else load_directory(spec, note)


def _load_exported(spec: SourceSpec, note: Note) -> Reference:
    _require_file(spec.location)
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)  # PyTorch logs the traceback of what it raises, too
    try:
        if not zipfile.is_zipfile(spec.location):
            raise ValueError("it is no zip archive, or was cut off")
        program = torch.export.load(spec.location)
        model = program.module()
    except Exception as error:  # the archive is foreign: whatever its reader raises says that it is damaged
        raise UsageError(
            f"{spec.location} is no exported program that PyTorch {torch.__version__} reads: {error}",
            hint="write it again with torch.export.save",
        ) from error
    finally:
        logging.disable(disabled)
    for module in model.modules():
        module.training = False  # an exported graph has its mode built in, and no .eval()
    if spec.inputs:
        args, kwargs = _exported_arguments(program, read_inputs(spec.inputs), spec.location)
    elif program.example_inputs is None:
        raise UsageError(f"{spec.location} has no example inputs", hint="give --inputs FILE.npz or FILE.safetensors")
    else:
        args, kwargs = program.example_inputs
    return _from_call(spec, f"exported program {spec.location}", model, args, kwargs)


def _exported_arguments(program: torch.export.ExportedProgram, inputs: Mapping[str, torch.Tensor], path: str) -> Any:
    """Tensors by name -> (args, kwargs) of the program, which was exported for tensors of these names."""
    names = [str(name) for name in program.graph_signature.user_inputs]
    if set(names) != set(inputs):
        raise UsageError(
            f"expected inputs named {', '.join(names)} for {path}, found {', '.join(inputs)}",
            hint="name the tensors in the file as the exported program does",
        )
    return pytree.tree_unflatten([inputs[name] for name in names], program.call_spec.in_spec)


def _require_file(path: str) -> None:
    if not os.path.isfile(path):
        raise UsageError(f"no file {path}", hint="put it back, or carve from where it is now")
