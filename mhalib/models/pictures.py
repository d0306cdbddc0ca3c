"""Models that look at pictures: a classifier, a captioner, and a reader that is asked about a picture."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from .._validate import require_count, require_tensor
from ..attention import LearnedPositions, MultiHeadAttention, padding_mask
from ._base import CROSS, DECODER, ENCODER, Decoder, Encoder, EncoderDecoder, Model, Tokens, Weights
from .description import Described, Description


def patches(images: Tensor, patch_size: int) -> Tensor:
    """(B, height, width) -> (B, N, patch_size**2): square patches, row by row from the top left.

    Raises:
        TypeError, ValueError: `images` has not three axes, or `patch_size` does not divide height and width.
    """
    require_tensor("images", images, rank=3)
    require_count("patch_size", patch_size)
    for name, length in zip(("height", "width"), images.shape[1:], strict=True):
        if length % patch_size:
            raise ValueError(f"images have a {name} of {length}, which is not divisible by patch_size={patch_size}")
    rows = images.unflatten(1, (-1, patch_size)).unflatten(3, (-1, patch_size))  # (B, rows, p, columns, p)
    return rows.transpose(2, 3).flatten(3).flatten(1, 2)


class Patches(nn.Module):
    """A vector for each patch of a picture, with its learned position."""

    def __init__(self, height: int, width: int, patch_size: int, num_hiddens: int) -> None:
        super().__init__()
        require_count("height", height)
        require_count("width", width)
        require_count("patch_size", patch_size)
        if height % patch_size or width % patch_size:
            raise ValueError(f"patch_size={patch_size} does not divide height={height} and width={width}")
        self.patch_size, self.size = patch_size, (height, width)
        self.embedding = nn.Linear(patch_size**2, num_hiddens)
        self.positions = LearnedPositions(height * width // patch_size**2, num_hiddens)

    def forward(self, images: Tensor) -> Tensor:
        """(B, height, width) -> (B, N, D)."""
        require_tensor("images", images, rank=3)
        if tuple(images.shape[1:]) != self.size:
            raise ValueError(f"images are {tuple(images.shape[1:])}, but the model was made for {self.size}")
        return self.positions(self.embedding(patches(images, self.patch_size)))


class ViT(Model):
    """Names what is on a picture: patches and one class token attend to each other, and the class token is read.

    Args:
        num_classes: how many answers there are.
        height, width: of the pictures, in pixels.
        patch_size: side of a patch; divides height and width.
        sizes, described: what the layers are like, by place (num_hiddens, num_heads, num_layers, ffn_num_hiddens,
            dropout) or by name, see `mhalib.models.Description`; `positions` and `max_tokens` are not open. Usual are
            64, 4, 2, 128, 0.1.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Source: Dosovitskiy et al. 2021.
    """

    usual = Description(num_layers=2, dropout=0.1)
    fixed = ("positions", "max_tokens")

    def __init__(
        self,
        num_classes: int = 10,
        height: int = 8,
        width: int = 8,
        patch_size: int = 2,
        *sizes: float,
        **described: Unpack[Described],
    ) -> None:
        super().__init__(sizes, described, num_classes=num_classes, height=height, width=width, patch_size=patch_size)
        require_count("num_classes", num_classes)
        self.patches = Patches(height, width, patch_size, self.design.num_hiddens)
        self.class_token = nn.Parameter(torch.randn(1, 1, self.design.num_hiddens) * 0.3)
        self.encoder = Encoder(self.design)
        self.readout = nn.Linear(self.design.num_hiddens, num_classes)

    def forward(self, images: Tensor, *, need_weights: bool = False) -> tuple[Tensor, Weights | None]:
        """images (B, height, width) -> logits (B, num_classes), and weights or `None`.

        In the weights, token 0 is the class token, and token 1 + i is patch i.
        """
        x = self.patches(images)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1)
        x, weights = self.encoder(x, need_weights=need_weights)
        return self.readout(x[:, 0]), {ENCODER: weights} if need_weights else None

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
