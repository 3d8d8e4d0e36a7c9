"""A small model with random weights for any architecture of transformers, and a run of its own kind.

Sizes are reduced by what the attributes of a configuration are called (``num_hidden_layers``, ``d_model``,
``image_size``, ...): transformers uses a few dozen such names for its several hundred architectures.  What kind of
model it is, what it takes and how it runs follow from the properties ``is_encoder_decoder``, ``main_input_name`` and
``can_generate()``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

BATCH = 2
TOKENS = 12
NEW_TOKENS = 4
WIDTH = 64
INITIAL_STD = WIDTH**-0.5
"""Standard deviation of weights with which a layer neither shrinks nor grows its input (fan-in is about ``WIDTH``)."""

_SIZES: tuple[tuple[str, int], ...] = (
    (r"vocab_size(_\w+)?$", 256),
    (r"(experts_per_tok|top_?k)$", 2),
    (r"(num|n)\w*_experts$|^num_experts$", 4),
    (r"((^|_)layers?|depth|^n_layers?|blocks)$", 2),
    (r"(key_value|kv)_heads$", 2),
    (r"(heads?)$", 4),
    (r"(head_dim|d_kv|d_head|head_size)$", WIDTH // 4),
    (r"(intermediate_size|ffn_dim|d_ff|n_inner|mlp_dim|ffn_size|d_inner)$", 2 * WIDTH),
    (r"(hidden_size|d_model|n_embd|embed_dim|embedding_size|hidden_dim|projection_dim)$", WIDTH),
    (r"(image_size)$", 64),
    (r"(max_source_positions)$", 32),
    (r"(sliding_window|attention_window)$", 8),
    (r"(lora_rank)$", 16),
)
_FLOATS = ((r"^(initializer_range|init_std)$", INITIAL_STD), (r"layer_scale_init", 0.1))


def make(architecture: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """``(program, args, kwargs)``: what a factory of tapml returns.

    Raises ``ValueError`` for a name that transformers does not know.
    """
    from transformers import CONFIG_MAPPING

    known = {name.replace("-", "_"): name for name in CONFIG_MAPPING}
    if architecture.replace("-", "_") not in known:
        raise ValueError(f"transformers has no architecture {architecture}")
    config = small_config(CONFIG_MAPPING[known[architecture.replace("-", "_")]])
    model = random_model(config)
    inputs = make_inputs(model, torch.Generator().manual_seed(1))
    return partial(generate if _generates(model) else forward, model), (), inputs


# -- configuration ----------------------------------------------------------------------------------------------------


def small_config(kind: type, **given: Any) -> Any:
    """A configuration of class ``kind`` with its sizes reduced, sub-configurations included."""
    full = kind(**given)
    parts = {name: small_config(type(getattr(full, name))) for name in kind.sub_configs if getattr(full, name, None)}
    changed: dict[str, Any] = {**parts, **given}
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        value = parameter.default
        if name in changed or value is inspect.Parameter.empty or isinstance(value, bool):
            continue
        small = _smaller(name, value)
        if small is not None and small != value:
            changed[name] = small
    changed |= _kinds_of_layer(full)
    vocabulary = changed.get("vocab_size")
    if vocabulary:
        changed |= _token_ids(kind, vocabulary)
    return kind(**changed)


def _smaller(name: str, value: Any) -> Any:
    """The value for a small model, ``None`` when the attribute is no size."""
    if isinstance(value, int):
        for pattern, size in _SIZES:
            if re.search(pattern, name):
                return min(value, size)
    if isinstance(value, float):
        return next((small for pattern, small in _FLOATS if re.search(pattern, name)), None)
    if isinstance(value, list | tuple) and value and all(isinstance(v, int) for v in value):
        if re.search(r"depths|layers|blocks", name):
            return type(value)(min(v, 1 + (v == max(value))) for v in value)
        if re.search(r"(hidden_sizes|embed_dims?|channels|dims?)$", name):
            return type(value)(max(8, v * 16 // min(value)) for v in value)
        if re.search(r"image_size$", name):
            return type(value)(64 for _ in value)
    return None


def _kinds_of_layer(full: Any) -> dict[str, Any]:
    """One layer of each kind that the full model has (sliding and full attention, say), two at least."""
    kinds = list(dict.fromkeys(getattr(full, "layer_types", None) or ()))
    if len(kinds) < 2:
        return {}
    return {"layer_types": kinds, full.attribute_map.get("num_hidden_layers", "num_hidden_layers"): len(kinds)}


def _token_ids(kind: type, vocabulary: int) -> dict[str, Any]:
    """Special tokens that a smaller vocabulary lacks, moved to its end."""
    changed: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        value = parameter.default
        if name.endswith("_token_id") and isinstance(value, int) and value >= vocabulary:
            changed[name] = vocabulary - 1 - value % 3
        elif name.endswith("_tokens") and isinstance(value, list | tuple) and any(v >= vocabulary for v in value):
            changed[name] = type(value)(v for v in value if v < vocabulary)
    return changed


# -- model ------------------------------------------------------------------------------------------------------------


def random_model(config: Any) -> torch.nn.Module:
    """The model with the head that fits: it generates if the architecture can, else classifies, else is bare."""
    from transformers.models.auto import modeling_auto as auto

    sequence = (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING)
    others = (
        auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        auto.MODEL_FOR_MASKED_LM_MAPPING,
        auto.MODEL_FOR_CAUSAL_LM_MAPPING,
        auto.MODEL_FOR_CTC_MAPPING,
        auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
        auto.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING,
        auto.MODEL_MAPPING,
    )
    mappings = (*sequence, *others) if getattr(config, "is_encoder_decoder", False) else others
    found = next((mapping[type(config)] for mapping in mappings if type(config) in mapping), None)
    if found is None:
        raise ValueError(f"transformers has no model for {type(config).__name__}")
    kind = found[0] if isinstance(found, tuple | list) else found
    model: torch.nn.Module = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # zeros as biases and ones as scales would hide an operator that leaves them out
            if parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all()):
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def _generates(model: Any) -> bool:
    return bool(model.can_generate()) and (model.config.is_encoder_decoder or not _bidirectional(model))


def _bidirectional(model: Any) -> bool:
    return "MaskedLM" in type(model).__name__


# -- inputs and runs --------------------------------------------------------------------------------------------------


def make_inputs(model: Any, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Inputs by the names that the model's ``forward`` takes; the last text of a batch is shorter than the others."""
    accepted = inspect.signature(model.forward).parameters
    config = model.config
    text, vision = config.get_text_config(), getattr(config, "vision_config", config)
    inputs: dict[str, torch.Tensor] = {}
    names = [model.main_input_name, *[n for n in ("input_ids", "pixel_values") if n in accepted and _composite(config)]]
    for name in dict.fromkeys(names):
        if name == "input_ids":
            padding = slice(0, 3) if _generates(model) and not config.is_encoder_decoder else slice(TOKENS - 3, TOKENS)
            ids = torch.randint(3, text.vocab_size - 8, (BATCH, TOKENS), generator=generator)
            mask = torch.ones_like(ids)
            mask[-1, padding] = 0
            inputs["input_ids"] = ids
            if "attention_mask" in accepted:
                inputs["attention_mask"] = mask
        elif name == "pixel_values":
            size = vision.image_size if isinstance(vision.image_size, list | tuple) else (vision.image_size,) * 2
            inputs[name] = torch.randn(BATCH, getattr(vision, "num_channels", 3), *size, generator=generator)
        elif name == "input_features":
            bins, positions = _first(config, "num_mel_bins", "input_feat_per_channel", 80), TOKENS * 4
            if hasattr(config, "max_source_positions"):  # two convolutions, the second of stride 2, come first
                inputs[name] = torch.randn(BATCH, bins, 2 * config.max_source_positions, generator=generator)
            else:
                inputs[name] = torch.randn(BATCH, positions, bins, generator=generator)
        elif name == "input_values":
            inputs[name] = torch.randn(BATCH, 4000, generator=generator)
        else:
            raise ValueError(f"{type(model).__name__} takes {name}, and nothing is known of how to make that")
    if model.config.is_encoder_decoder and not _generates(model) and "decoder_input_ids" in accepted:
        inputs["decoder_input_ids"] = torch.randint(3, text.vocab_size - 8, (BATCH, TOKENS), generator=generator)
    return inputs


def _composite(config: Any) -> bool:
    return bool(getattr(config, "text_config", None)) and bool(getattr(config, "vision_config", None))


def _first(config: Any, *names: Any) -> Any:
    return next((getattr(config, n) for n in names[:-1] if hasattr(config, n)), names[-1])


def generate(model: Any, **inputs: torch.Tensor) -> Mapping[str, torch.Tensor]:
    """A few tokens, greedily: ``tokens`` [batch, steps] and ``logits`` [steps, batch, vocabulary]."""
    settings = model.generation_config
    if model.config.is_encoder_decoder and settings.decoder_start_token_id is None:
        settings.decoder_start_token_id = settings.pad_token_id or 0
    made = model.generate(
        **inputs, do_sample=False, num_beams=1, max_new_tokens=NEW_TOKENS, use_cache=True,
        return_dict_in_generate=True, output_logits=True,
    )  # fmt: skip
    logits = torch.stack(list(made["logits"]))
    return {"tokens": made["sequences"][:, -logits.shape[0] :], "logits": logits}


def forward(model: Any, **inputs: torch.Tensor) -> Mapping[str, Any]:
    """One forward pass; its tensors by name."""
    out = model(**inputs)
    return {name: value for name, value in out.items() if isinstance(value, torch.Tensor)}
