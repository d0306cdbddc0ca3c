"""Models with the weights that others trained: from a folder, or from the Hugging Face hub at a pinned commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._validate import require_choice, require_count, require_device
from .convert import build, token_without_position
from .decoders import DECODERS, build_decoder
from .files import MINILM, TOKENIZER, Checkpoint, Place, optional, sha256_of
from .maps import Reading
from .pieces import pieces
from .room import on_meta, require_dtype, require_room

ROUTES = ("mhalib", "transformers")
_Run = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A model and its tokenizer. Call it with a text.

    model: a `mhalib.models.BERT` or a `mhalib.models.GPT`, which gates, measures and pictures take like the book's own
        models; or, loaded through transformers, what that library made.
    tokenizer: a `tokenizers.Tokenizer` that neither pads nor cuts.
    sha256: of the file of weights; of several, as if they were one, in the order of their names.
    """

    model: nn.Module
    tokenizer: Any
    sha256: str
    _run: _Run = field(repr=False)

    def __call__(self, text: str) -> Reading:
        """Read one text: its tokens, all weights (layers, h, N, N), and the output: of an encoder a vector for each
        token, (N, D), of a decoder logits for the token after each, (N, vocab_size).

        Raises:
            TypeError: it is not a string.
            ValueError: it has no tokens, or more tokens than the model has learned positions, or an encoder like
                RoBERTa is given the token that pads.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a string, got {type(text).__name__}: {text!r:.80}")
        encoded = self.tokenizer.encode(text)
        if not encoded.ids:
            raise ValueError(f"text={text!r:.80} has no tokens")
        with torch.no_grad():
            output, weights = self._run(torch.tensor([encoded.ids], device=next(self.model.parameters()).device))
        names, covered = tuple(encoded.tokens), pieces(text, encoded)
        return Reading(text, names, tuple(encoded.ids), weights, output, covered)


def load(
    source: str | Path = MINILM,
    *,
    revision: str | None = None,
    sha256: str | None = None,
    device: torch.device | str = "cpu",
    through: str = "mhalib",
    dtype: torch.dtype = torch.float32,
    offline: bool = False,
    memory_limit: int | None = None,
) -> Pretrained:
    """A model with its trained weights, in evaluation mode.

    Our layers hold the encoders BERT, ELECTRA, RoBERTa, XLM-RoBERTa, CamemBERT and DistilBERT, and the decoders GPT-2,
    OPT, GPT-NeoX and Pythia, LLaMA 2 and 3, Mistral, Qwen2, Qwen3 and Gemma; `mhalib.pretrained.decoders` says what
    each decoder asks for. What they cannot hold is refused by name, before any weight is fetched or read.

    Needs the package `tokenizers`, and for the hub `huggingface_hub`: `pip install "mhalib[pretrained]"`.

    Args:
        source: a folder with config.json, tokenizer.json and model.safetensors, or several such files and their
            model.safetensors.index.json; or a name on the hub, "owner/name".
        revision: for the hub, the commit, 40 hexadecimal digits; `None` takes that of `PINS`.
        sha256: what the weights must hash to, see `Pretrained`; `None` takes that of `PINS` with its revision, and any
            otherwise.
        device: where the model is put.
        through: "mhalib" puts the weights into our layers; "transformers" lets that library run any model that it knows
            and that returns its attention weights.
        dtype: of the model; weights that are stored as another type are converted one after the other.
        offline: whether the hub's files must be on this machine already, and nothing may be fetched.
        memory_limit: how many bytes the weights may take in our layers; `None` means what is free on the device, where
            it can be known. `mhalib.pretrained.memory` counts them beforehand.

    Raises:
        TypeError, ValueError: an argument is not of this kind, a file is missing or damaged, the hash is another, the
            architecture is not supported, or the weights take too much memory.
        ImportError: a package is missing.
        OSError: the hub did not give a file.
    """
    require_choice("through", through, ROUTES)
    require_device("device", device)
    require_dtype("dtype", dtype)
    if memory_limit is not None:
        require_count("memory_limit", memory_limit)
    place = Place(source, revision, sha256, offline)
    place.require()
    config = place.config()
    if through == "mhalib":
        require_room(on_meta(config), dtype, "cpu" if device is None else device, memory_limit)
    paths = place.weights()
    found = sha256_of(paths)
    if place.sha256 not in (None, found):
        names = paths[0].name if len(paths) == 1 else f"the {len(paths)} files of weights"
        raise ValueError(f"{names} of {str(source)!r} is not what was asked for: sha256 is {found}, not {place.sha256}")
    tokenizer = _tokenizer(place.path(TOKENIZER))
    if through == "mhalib":
        model, run = _own(config, Checkpoint(paths), dtype, device)
    else:
        model, run = _foreign(paths[0].parent, config, dtype)
    return Pretrained(model.to(device), tokenizer, found, run)


def _tokenizer(path: Path) -> Any:
    tokenizers = optional("tokenizers")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # it raises Exception itself
        raise ValueError(f"path={str(path)!r} does not hold a tokenizer: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _own(
    config: dict[str, Any], tensors: Checkpoint, dtype: torch.dtype, device: torch.device | str
) -> tuple[nn.Module, _Run]:
    if config["model_type"] in DECODERS:
        decoder = build_decoder(config, tensors, dtype, device)
        return decoder, lambda ids: _read(decoder, ids)
    model = build(config, tensors).to(dtype)
    uncounted = token_without_position(config)

    def run(ids: Tensor) -> tuple[Tensor, Tensor]:
        if uncounted is not None and (ids == uncounted).any():
            raise ValueError(
                f"text holds the token that pads, {uncounted}, which this encoder leaves out when it counts positions, "
                'and our model does not: through="transformers" runs it'
            )
        return _read(model, ids)

    return model, run


def _read(model: nn.Module, ids: Tensor) -> tuple[Tensor, Tensor]:
    """One text's output, and the weights of all layers."""
    output, weights = model(ids, need_weights=True)
    return output[0], torch.cat([layer for of_kind in weights.values() for layer in of_kind])


def _foreign(folder: Path, config: dict[str, Any], dtype: torch.dtype) -> tuple[nn.Module, _Run]:
    transformers = optional("transformers")
    names = config.get("architectures")
    has_logits = isinstance(names, list) and str(names[:1]).endswith(("ForCausalLM']", "LMHeadModel']"))
    kind = transformers.AutoModelForCausalLM if has_logits else transformers.AutoModel
    if config.get("is_encoder_decoder"):
        raise ValueError(f"model_type={config.get('model_type')!r} reads one text and writes another, and is not run")
    model = kind.from_pretrained(
        str(folder), local_files_only=True, use_safetensors=True, attn_implementation="eager", dtype=dtype
    ).eval()

    def run(ids: Tensor) -> tuple[Tensor, Tensor]:
        result = model(input_ids=ids, output_attentions=True)
        attentions = result.get("attentions")
        if not attentions or any(layer is None for layer in attentions):
            raise ValueError(f"{type(model).__name__} returns no attention weights")
        output = result.logits if has_logits else result.last_hidden_state
        return output[0], torch.cat(list(attentions))

    return model, run
