"""Words and their ids."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from .._validate import as_list, require_count, require_integers, require_tensor, require_text, require_values


class Vocabulary:
    """Words in a fixed order; the id of a word is its place. Id 0 is padding.

    Args:
        words: in the order of their ids, from 1 on, without padding.

    Raises:
        TypeError: `words` is no list of strings.
        ValueError: a word comes twice.
    """

    padding = "<pad>"

    def __init__(self, words: Iterable[str]) -> None:
        self.words = (self.padding, *as_list("words", words))
        for word in self.words:
            require_text("each word", word)
        self.ids = {word: i for i, word in enumerate(self.words)}
        if len(self.ids) < len(self.words):
            twice = sorted({word for word in self.words if self.words.count(word) > 1})
            raise ValueError(f"words holds {twice} more than once")

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, texts: Sequence[Sequence[str]], num_tokens: int | None = None) -> tuple[Tensor, Tensor]:
        """Lists of words -> ids (n, N), padded with 0, and how many are real (n,).

        Args:
            texts: n lists of words.
            num_tokens: N; `None` means the longest text's.

        Raises:
            TypeError: `texts` are no lists of strings.
            ValueError: a word is not known, or a text is longer than `num_tokens`.
        """
        texts = [as_list("each text", text) for text in as_list("texts", texts)]
        for word in itertools.chain.from_iterable(texts):
            require_text("each word", word)
        valid_lens = torch.tensor([len(text) for text in texts], dtype=torch.long)
        longest = int(valid_lens.max()) if len(texts) else 0
        num_tokens = longest if num_tokens is None else num_tokens
        require_count("num_tokens", num_tokens, minimum=0)
        if longest > num_tokens:
            raise ValueError(f"a text has {longest} words, more than num_tokens={num_tokens}")
        tokens = torch.zeros(len(texts), num_tokens, dtype=torch.long)
        for i, text in enumerate(texts):
            unknown = [word for word in text if word not in self.ids]
            if unknown:
                raise ValueError(f"unknown words {unknown} in {' '.join(text)!r}")
            tokens[i, : len(text)] = torch.tensor([self.ids[word] for word in text], dtype=torch.long)
        return tokens, valid_lens

    def decode(self, tokens: Tensor) -> list[str]:
        """Ids (N,) -> words, padding left out; `ValueError` if there is no such id."""
        require_tensor("tokens", tokens, rank=1)
        require_integers("tokens", tokens)
        require_values("tokens", tokens)
        ids = tokens.tolist()
        unknown = sorted({i for i in ids if not 0 <= i < len(self)})
        if unknown:
            raise ValueError(f"tokens holds {unknown}, but ids go from 0 to {len(self) - 1}")
        return [self.words[i] for i in ids if i]
