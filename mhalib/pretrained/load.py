"""Models with the weights that others trained: from a folder, or from the Hugging Face hub at a pinned commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._validate import require_choice, require_count, require_device
from ..models import CLIP, ViT
from .config import read_config
from .convert import build, token_without_position
from .decoders import DECODERS, build_decoder
from .files import CONFIG, MINILM, PREPARATION, TOKENIZER, Checkpoint, Place, optional, sha256_of
from .maps import Reading
from .pictures import PICTURES, build_pictures
from .preparation import Preparation, preparation_of
from .room import on_meta, require_dtype, require_room

ROUTES = ("mhalib", "transformers")
_Run = Callable[[Tensor], tuple[Tensor, Tensor]]
_CLASS_TOKENS = ("[CLS]", "[DISTILLED]")


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A model and what prepares its input. Call it with a text, or with a picture where the model reads pictures.

    model: a `mhalib.models.BERT`, `GPT`, `ViT` or `CLIP`, which gates, measures and pictures take like the book's own
        models; or, loaded through transformers, what that library made.
    tokenizer: a `tokenizers.Tokenizer` that neither pads nor cuts; `None` of a ViT, which reads no texts.
    sha256: of the file of weights; of several, as if they were one, in the order of their names.
    prepare: what pictures go through before `model` takes them; `None` of a model that reads none.
    """

    model: nn.Module
    tokenizer: Any
    sha256: str
    _run: _Run = field(repr=False)
    prepare: Preparation | None = None
    _look: _Run | None = field(default=None, repr=False)

    def __call__(self, text: str | Tensor) -> Reading:
        """Read one text: its tokens, all weights (layers, h, N, N), and the output: of an encoder a vector for each
        token, (N, D), of a decoder logits for the token after each, (N, vocab_size), of CLIP the text's vector.

        Or one picture (channels, height, width), numbers from 0 to 1, which `prepare` makes fit for the model. Its
        tokens are the class token and the patches by row and column, "[CLS]", "0,0", "0,1", and its output is logits
        (num_classes,), of a ViT without a classifier a vector for each token, (N, D), and of CLIP the picture's vector.
        The vectors of CLIP are not divided by their lengths.

        Raises:
            TypeError: it is nothing that the model reads.
            ValueError: a text has no tokens, or more tokens than the model has learned positions, or an encoder like
                RoBERTa is given the token that pads; or a picture is not one of this kind.
        """
        if isinstance(text, Tensor) and self.prepare is not None and self._look is not None:
            return self._read_picture(text, self.prepare, self._look)
        if self.tokenizer is None:
            raise TypeError(f"a ViT reads pictures, tensors of three axes, got {type(text).__name__}: {text!r:.80}")
        if not isinstance(text, str):
            raise TypeError(f"text must be a string, got {type(text).__name__}: {text!r:.80}")
        encoded = self.tokenizer.encode(text)
        if not encoded.ids:
            raise ValueError(f"text={text!r:.80} has no tokens")
        with torch.no_grad():
            output, weights = self._run(torch.tensor([encoded.ids], device=next(self.model.parameters()).device))
        return Reading(text, tuple(encoded.tokens), tuple(encoded.ids), weights, output)

    def _read_picture(self, picture: Tensor, prepare: Preparation, look: _Run) -> Reading:
        if picture.dim() != 3:
            raise ValueError(f"a picture has three axes (channels, height, width), got shape {tuple(picture.shape)}")
        vit = self.model.pictures if isinstance(self.model, CLIP) else self.model
        assert isinstance(vit, ViT)
        with torch.no_grad():
            ready = prepare(picture[None].float() if picture.is_floating_point() else picture[None])
            output, weights = look(ready.to(next(vit.parameters())))
        _, columns = (length // vit.patches.patch_size for length in vit.patches.size[-2:])
        patches = range(vit.patches.positions.max_tokens)
        tokens = (*_CLASS_TOKENS[: vit.class_token.shape[1]], *(f"{i // columns},{i % columns}" for i in patches))
        return Reading("", tokens, tuple(range(len(tokens))), weights, output)


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
    each decoder asks for. Of models of pictures they hold ViT, DeiT and CLIP, see `mhalib.pretrained.pictures`. What
    they cannot hold is refused by name, before any weight is fetched or read.

    Needs the package `tokenizers`, and for the hub `huggingface_hub`: `pip install "mhalib[pretrained]"`.

    Args:
        source: a folder with config.json, tokenizer.json and model.safetensors, or several such files and their
            model.safetensors.index.json; or a name on the hub, "owner/name". Of a ViT, preprocessor_config.json in
            place of tokenizer.json, and of CLIP both.
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
    config = place.config() if place.has(CONFIG) else {}
    kind = config.get("model_type")
    needed = _needed(kind)
    place.require(needed)
    if through == "transformers" and PREPARATION in needed:
        raise ValueError(f"model_type={kind!r} in config.json reads pictures, which only our layers do here")
    if through == "mhalib":
        require_room(on_meta(config), dtype, "cpu" if device is None else device, memory_limit)
    paths = place.weights()
    found = sha256_of(paths)
    if place.sha256 not in (None, found):
        names = paths[0].name if len(paths) == 1 else f"the {len(paths)} files of weights"
        raise ValueError(f"{names} of {str(source)!r} is not what was asked for: sha256 is {found}, not {place.sha256}")
    tokenizer = _tokenizer(place.path(TOKENIZER)) if TOKENIZER in needed else None
    if PREPARATION in needed:
        prepare = preparation_of(read_config(place.path(PREPARATION)), str(kind))
        return _of_pictures(build_pictures(config, Checkpoint(paths), dtype, device), tokenizer, found, prepare)
    if through == "mhalib":
        model, run = _own(config, Checkpoint(paths), dtype, device)
    else:
        model, run = _foreign(paths[0].parent, config, dtype)
    return Pretrained(model.to(device), tokenizer, found, run)


def _needed(kind: object) -> tuple[str, ...]:
    """The files besides config.json and weights that a model needs."""
    if not isinstance(kind, str) or kind not in PICTURES:
        return (TOKENIZER,)
    return (TOKENIZER, PREPARATION) if PICTURES[kind][0] is CLIP else (PREPARATION,)


def _of_pictures(model: ViT | CLIP, tokenizer: Any, sha256: str, prepare: Preparation) -> Pretrained:
    pictures = model.read_pictures if isinstance(model, CLIP) else model
    texts = model.read_texts if isinstance(model, CLIP) else model
    return Pretrained(
        model,
        tokenizer,
        sha256,
        lambda ids: _read(texts, ids),
        prepare=prepare,
        _look=lambda ready: _read(pictures, ready),
    )


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


def _read(model: Callable[..., tuple[Tensor, Any]], ids: Tensor) -> tuple[Tensor, Tensor]:
    """One text's or picture's output, and the weights of all layers."""
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
