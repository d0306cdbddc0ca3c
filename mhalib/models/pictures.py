"""Models that look at pictures: a classifier, a captioner, and a reader that is asked about a picture."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from .._validate import require_count, require_flag, require_tensor
from ..attention import LearnedPositions, MultiHeadAttention, padding_mask
from ..attention.kernels import autocasts
from ._base import CROSS, DECODER, ENCODER, Decoder, Encoder, EncoderDecoder, Model, Tokens, Weights
from .blocks import make_norm
from .description import Described, Description


def patches(images: Tensor, patch_size: int) -> Tensor:
    """(B, height, width) -> (B, N, patch_size**2): square patches, row by row from the top left.

    Pictures of several colours (B, channels, height, width) -> (B, N, channels * patch_size**2): of each patch, one
    colour behind the other.

    Raises:
        TypeError, ValueError: `images` has neither three axes nor four, or `patch_size` does not divide height and
            width.
    """
    require_tensor("images", images, rank=4 if isinstance(images, Tensor) and images.dim() == 4 else 3)
    require_count("patch_size", patch_size)
    for name, length in zip(("height", "width"), images.shape[-2:], strict=True):
        if length % patch_size:
            raise ValueError(f"images have a {name} of {length}, which is not divisible by patch_size={patch_size}")
    colours = images if images.dim() == 4 else images[:, None]
    rows = colours.unflatten(2, (-1, patch_size)).unflatten(4, (-1, patch_size))  # (B, channels, rows, p, columns, p)
    return rows.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


class Patches(nn.Module):
    """A vector for each patch of a picture, with its learned position.

    `channels` is how many colours a picture has; `None` means one, for which pictures have no axis.
    """

    def __init__(
        self,
        height: int,
        width: int,
        patch_size: int,
        num_hiddens: int,
        channels: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        require_count("height", height)
        require_count("width", width)
        require_count("patch_size", patch_size)
        if channels is not None:
            require_count("channels", channels)
        if height % patch_size or width % patch_size:
            raise ValueError(f"patch_size={patch_size} does not divide height={height} and width={width}")
        self.patch_size = patch_size
        self.size = (height, width) if channels is None else (channels, height, width)
        self.embedding = nn.Linear((channels or 1) * patch_size**2, num_hiddens, bias=bias)
        self.positions = LearnedPositions(height * width // patch_size**2, num_hiddens)

    def forward(self, images: Tensor) -> Tensor:
        """(B, height, width), or (B, channels, height, width) -> (B, N, D)."""
        require_tensor("images", images, rank=1 + len(self.size))
        if tuple(images.shape[1:]) != self.size:
            raise ValueError(f"images are {tuple(images.shape[1:])}, but the model was made for {self.size}")
        dtype = self.embedding.weight.dtype
        if images.dtype != dtype and not autocasts(images.device.type):
            raise TypeError(f"images is {images.dtype}, but the model's weights are {dtype}")
        return self.positions(self.embedding(patches(images, self.patch_size)))


class ViT(Model):
    """Names what is on a picture: patches and one class token attend to each other, and the class token is read.

    Args:
        num_classes: how many answers there are; `None` leaves the readout out, and the model gives its tokens' vectors.
        height, width: of the pictures, in pixels.
        patch_size: side of a patch; divides height and width.
        sizes, described: what the layers are like, by place (num_hiddens, num_heads, num_layers, ffn_num_hiddens,
            dropout) or by name, see `mhalib.models.Description`; `positions` and `max_tokens` are not open. Usual are
            64, 4, 2, 128, 0.1.
        channels: how many colours a picture has; `None` means one, for which pictures have no axis.
        patch_bias, readout_bias: whether the maps of patches and to answers have biases.
        norm_tokens: whether the tokens are normalised before the first layer, too, as in CLIP.
        distilled: whether a second class token is read by a readout of its own, and the answer is the mean of both, as
            in DeiT.
        num_registers: how many tokens without a patch stand behind the class tokens. Nobody reads them out: heads may
            look at them and write into them.

    The class token has no position of its own: it would be one learned vector plus another.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Sources: Dosovitskiy et al. 2021; for `distilled`, Touvron et al. 2021, Training Data-Efficient Image Transformers
    and Distillation through Attention; for registers, Darcet et al. 2024, Vision Transformers Need Registers.
    """

    usual = Description(num_layers=2, dropout=0.1)
    fixed = ("positions", "max_tokens")

    def __init__(
        self,
        num_classes: int | None = 10,
        height: int = 8,
        width: int = 8,
        patch_size: int = 2,
        *sizes: float,
        channels: int | None = None,
        patch_bias: bool = True,
        readout_bias: bool = True,
        norm_tokens: bool = False,
        distilled: bool = False,
        num_registers: int = 0,
        **described: Unpack[Described],
    ) -> None:
        usual = {"patch_bias": True, "readout_bias": True, "norm_tokens": False, "distilled": False}
        flags = dict(zip(usual, (patch_bias, readout_bias, norm_tokens, distilled), strict=True))
        for name, flag in flags.items():
            require_flag(name, flag)
        told = {"num_classes": num_classes, "height": height, "width": width, "patch_size": patch_size}
        told |= {name: bool(flag) for name, flag in flags.items() if flag != usual[name]}  # older files name none
        told |= {} if channels is None else {"channels": channels}
        require_count("num_registers", num_registers, minimum=0)
        told |= {"num_registers": num_registers} if num_registers else {}
        super().__init__(sizes, described, **told)
        if num_classes is not None:
            require_count("num_classes", num_classes)
        width_of_all = self.design.num_hiddens
        self.patches = Patches(height, width, patch_size, width_of_all, channels, patch_bias)
        self.class_token = nn.Parameter(torch.randn(1, 2 if distilled else 1, width_of_all) * 0.3)
        self.registers = nn.Parameter(torch.randn(1, num_registers, width_of_all) * 0.3) if num_registers else None
        self.norm = make_norm(width_of_all, self.design.norm_kind, self.design.norm_eps) if norm_tokens else None
        self.encoder = Encoder(self.design)
        readouts = [
            None if num_classes is None else nn.Linear(width_of_all, num_classes, bias=readout_bias)
            for _ in range(self.class_token.shape[1])
        ]
        self.readout, self.second_readout = (*readouts, None)[:2]

    @property
    def num_tokens(self) -> int:
        """How many tokens a picture becomes."""
        return self.num_without_patch + self.patches.positions.max_tokens

    @property
    def num_without_patch(self) -> int:
        """How many tokens stand before the patches: class tokens and registers."""
        return self.class_token.shape[1] + (0 if self.registers is None else self.registers.shape[1])

    def forward(self, images: Tensor, *, need_weights: bool = False) -> tuple[Tensor, Weights | None]:
        """images (B, height, width), or (B, channels, height, width) -> logits (B, num_classes), and weights or `None`;
        without a readout, vectors (B, N, D) in place of the logits.

        In the weights, token 0 is the class token, with `distilled` token 1 is the second; registers follow, and
        token `num_without_patch` + i is patch i.
        """
        x = self.patches(images)
        before = [one.expand(len(x), -1, -1) for one in (self.class_token, self.registers) if one is not None]
        x = torch.cat([*before, x], 1)
        x = x if self.norm is None else self.norm(x)
        x, weights = self.encoder(x, need_weights=need_weights)
        return self._read_out(x), {ENCODER: weights} if need_weights else None

    def _read_out(self, x: Tensor) -> Tensor:
        if self.readout is None:
            return x
        logits = self.readout(x[:, 0])
        return logits if self.second_readout is None else (logits + self.second_readout(x[:, 1])) / 2

    def attention_layers(self) -> dict[str, list[MultiHeadAttention]]:
        return {ENCODER: self.encoder.self_attention}


class Captioner(EncoderDecoder):
    """Describes a picture in words: an encoder over patches, and a decoder that looks at them.

    Args:
        vocab_size: how many different tokens a caption has.
        height, width, patch_size: of the pictures.
        sizes, described: what the layers are like, by place (num_hiddens, num_heads, num_layers, ffn_num_hiddens,
            dropout) or by name, see `mhalib.models.Description`; `positions` is not open. Usual are 64, 4, 1, 128, 0,
            and max_tokens=8, how long a caption may be.

    Raises:
        TypeError, ValueError: an argument is not of this kind.
    """

    usual = Description(max_tokens=8)
    fixed = ("positions",)

    def __init__(
        self,
        vocab_size: int,
        height: int,
        width: int,
        patch_size: int = 4,
        *sizes: float,
        **described: Unpack[Described],
    ) -> None:
        super().__init__(sizes, described, vocab_size=vocab_size, height=height, width=width, patch_size=patch_size)
        self.patches = Patches(height, width, patch_size, self.design.num_hiddens)
        self.target = Tokens(vocab_size, self.design)
        self.encoder = Encoder(self.design)
        self.decoder = Decoder(self.design)
        self.readout = nn.Linear(self.design.num_hiddens, vocab_size)

    def embed_source(self, source: Tensor, is_real: Tensor | None = None) -> Tensor:
        """Pictures (B, height, width) -> (B, patches, D). A patch has its place in the picture, padding or not."""
        return self.patches(source)


class PictureReader(Model):
    """Answers a question about a picture: the words of the question attend to each other, then to the patches.

    Args:
        vocab_size: how many different tokens questions have.
        num_answers: how many answers there are.
        height, width, patch_size: of the pictures.
        sizes, described: as in `Captioner`. `num_layers` are of the encoder of patches; cross-attention has one layer.

    Raises:
        TypeError, ValueError: an argument is not of this kind.
    """

    usual = Description(max_tokens=8)
    fixed = ("positions",)

    def __init__(
        self,
        vocab_size: int,
        num_answers: int,
        height: int,
        width: int,
        patch_size: int = 4,
        *sizes: float,
        **described: Unpack[Described],
    ) -> None:
        own = {"height": height, "width": width, "patch_size": patch_size}
        super().__init__(sizes, described, vocab_size=vocab_size, num_answers=num_answers, **own)
        require_count("num_answers", num_answers)
        self.patches = Patches(height, width, patch_size, self.design.num_hiddens)
        self.question = Tokens(vocab_size, self.design)
        self.encoder = Encoder(self.design)
        self.reader = Decoder(replace(self.design, num_layers=1))
        self.readout = nn.Linear(self.design.num_hiddens, num_answers)

    def forward(
        self, images: Tensor, questions: Tensor, question_lens: Tensor | None = None, *, need_weights: bool = False
    ) -> tuple[Tensor, Weights | None]:
        """Answer at the question's first token.

        Args:
            images: (B, height, width).
            questions: (B, Q) ids.
            question_lens: (B,) how many of them are real.
            need_weights: whether weights are returned.

        Returns:
            logits (B, num_answers), and weights or `None`: of patches over patches, "encoder self"; of words over
            words, "decoder self", which nothing masks but padding; of words over patches, "cross".
        """
        require_tensor("questions", questions, rank=2)
        memory, seen = self.encoder(self.patches(images), need_weights=need_weights)
        mask = None if question_lens is None else padding_mask(question_lens, questions.shape[1])
        x, own, cross = self.reader(self.question(questions), memory, mask=mask, need_weights=need_weights)
        return self.readout(x[:, 0]), {ENCODER: seen, DECODER: own, CROSS: cross} if need_weights else None

    def attention_layers(self) -> dict[str, list[MultiHeadAttention]]:
        return {
            ENCODER: self.encoder.self_attention,
            DECODER: self.reader.self_attention,
            CROSS: self.reader.cross_attention,
        }
