"""Input tensors from a file."""

from __future__ import annotations

import os
import zipfile

import numpy
import torch
from safetensors.torch import load_file

from tapml.errors import UsageError


def read_inputs(path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """Keyword arguments of the model, by name, from a ``.npz`` or ``.safetensors`` file.

    Raises :class:`UsageError` for a file that is missing, damaged, empty, of another kind, or has Python objects in it.
    """
    path = os.fspath(path)
    hint = "write it with numpy.savez(FILE, name=array, ...) or safetensors.torch.save_file"
    if not path.endswith((".npz", ".safetensors")):
        raise UsageError(f"expected a .npz or .safetensors file of inputs, found {path}", hint=hint)
    try:
        if path.endswith(".safetensors"):
            inputs = load_file(path)
        else:
            with zipfile.ZipFile(path) as archive:  # numpy does not read far enough to come upon a wrong checksum
                if damaged := archive.testzip():
                    raise ValueError(f"{damaged} is damaged")
            with open(path, "rb") as file, numpy.load(file, allow_pickle=False) as arrays:
                inputs = {name: torch.from_numpy(numpy.array(arrays[name])) for name in arrays.files}
    except Exception as error:  # zipfile, zlib, numpy and safetensors each have their own for a damaged file
        raise UsageError(f"cannot read inputs from {path}: {error}", hint=hint) from error
    if not inputs:
        raise UsageError(f"{path} has no tensors", hint=hint)
    return inputs
