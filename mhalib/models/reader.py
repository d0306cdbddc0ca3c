"""A model that reads a sentence, and answers questions about each of its words."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from .._validate import require_count
from ..attention import MultiHeadAttention
from ._base import ENCODER, Model, Tokens, Weights
from .description import LATER, Choices, Described

WITHOUT_BIASES = {"name": "multi-head", "bias": False}


class SentenceReader(Model):
    """One attention layer between an embedding and a readout, nothing else: the `Reader` of chapter 7.

    There is no skip connection, so that an answer knows of the sentence only what the heads have found.

    Args:
        vocab_size: how many different words there are.
        num_questions: how many questions are asked about each word; each answer is a word.
        num_hiddens: D.
        num_heads: h.
        max_tokens: how many words a sentence may have, with learned positions.
        positions, attention: as in `mhalib.models.Description`.

    Raises:
        TypeError, ValueError: an argument is not of this kind.
    """

    fixed = ("num_layers", "ffn_num_hiddens", "dropout", "norm", *LATER)

    def __init__(
        self,
        vocab_size: int,
        num_questions: int = 4,
        num_hiddens: int = 64,
        num_heads: int = 4,
        *,
        max_tokens: int = 10,
        positions: str = "learned",
        attention: Choices = WITHOUT_BIASES,
    ) -> None:
        described: Described = {"max_tokens": max_tokens, "positions": positions, "attention": attention}
        super().__init__((num_hiddens, num_heads), described, vocab_size=vocab_size, num_questions=num_questions)
        require_count("num_questions", num_questions)
        self.num_questions = num_questions
        self.tokens = Tokens(vocab_size, self.design)
        self.attention = self.design.self_attention()
        self.readout = nn.Linear(num_hiddens, num_questions * vocab_size)

    def forward(
        self, tokens: Tensor, valid_lens: Tensor | None = None, *, need_weights: bool = False
    ) -> tuple[Tensor, Weights | None]:
        """Answer every question about every word.

        Args:
            tokens: (B, N) ids.
            valid_lens: (B,) how many of them are real. What comes out at padding means nothing.
            need_weights: whether weights are returned.

        Returns:
            scores (B, N, num_questions, vocab_size), and weights or `None`: "encoder self", of words over words.
        """
        x = self.tokens(tokens)
        x, weights = self.attention(x, x, x, valid_lens, need_weights=need_weights)
        scores = self.readout(x).unflatten(-1, (self.num_questions, -1))
        return scores, {ENCODER: [cast(Tensor, weights)]} if need_weights else None

    def attention_layers(self) -> dict[str, list[MultiHeadAttention]]:
        return {ENCODER: [self.attention]}
