"""A translator: a model with its two vocabularies. Texts in, texts out, with the attention weights of every token."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.files import PathLike
from regard.data.sealed import FileKind, read_sealed, write_sealed
from regard.nn.argument_checks import at_least_one
from regard.seq2seq.decoding import Ends, Hypothesis, beam
from regard.seq2seq.model import Architecture, Seq2Seq
from regard.seq2seq.token_batches import Sentences, collate
from regard.seq2seq.vocabulary import BOS, EOS, UNK, Vocabulary

# Longer texts are truncated, with a warning.
MAX_TOKENS = 1000
# The begin and end tokens of every vocabulary, and the default limits of a translation.
ENDS = Ends(BOS, EOS)


class TranslatorError(ValueError):
    """A translator that cannot be saved, or a file that is not one, is damaged, or has a newer format."""


_KIND = FileKind(
    "regard-translator",
    1,
    "regard translator",
    {"regard": str, "architecture": dict, "source": dict, "target": dict, "metadata": dict},
    TranslatorError,
)


class Translation(NamedTuple):
    """A translated text, its tokens, and the attention weights of each token.

    Attributes
    ----------
    text : str
        The translation.
    tokens : tuple of str (T,)
        Of the target, with a final "<eos>" unless truncated.
    source_tokens : tuple of str (S,)
        Of the source.
    weights : array (T, S)
        Attention of each target token to the source tokens.
    score : float
        Mean log-probability of a token.

    >>> Translation("05", ("05",), ("mai", "2021"), np.array([[0.9, 0.1]]), -0.1).weights.shape
    (1, 2)
    """

    text: str
    tokens: tuple[str, ...]  # of the target, with a final "<eos>" unless truncated
    source_tokens: tuple[str, ...]
    weights: NDArray[Any]  # (len(tokens), len(source_tokens))
    score: float  # mean log-probability of a token


NOTHING = Translation("", (), (), np.zeros((0, 0), np.float32), 0.0)


class Translator:
    """A model with its source and target vocabularies.

    Parameters
    ----------
    model : Seq2Seq
        From ids of ``source`` to ids of ``target``.
    source : Vocabulary
        Of the source.
    target : Vocabulary
        Of the target.
    metadata : dict, default=None
        Plain data that is saved with it.

    >>> letters = Vocabulary.learn(["ab"], "characters")
    >>> small = Translator(Seq2Seq(Architecture(4, 4), len(letters), len(letters)), letters, letters)
    >>> small.translate(["", "ba"])[0].text
    ''
    """

    def __init__(
        self, model: Seq2Seq, source: Vocabulary, target: Vocabulary, metadata: dict[str, Any] | None = None
    ) -> None:
        self.model, self.source, self.target = model, source, target
        self.metadata = metadata or {}

    @property
    def architecture(self) -> Architecture:
        return self.model.architecture

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def to(self, device: str | torch.device) -> Translator:
        """Move the model to a device.

        Parameters
        ----------
        device : str or torch device
            Such as "cuda".

        Returns
        -------
        Translator
            Itself.
        """
        self.model.to(device)
        return self

    def translate(
        self,
        texts: Sequence[str],
        *,
        beam: int = 1,
        normalise: float = 1.0,
        copy_unknown: bool = False,
        batch_size: int = 64,
    ) -> list[Translation]:
        """One translation per text; that of an empty text is empty.

        Parameters
        ----------
        texts : sequence of str
            A text of more than 1,000 tokens is truncated, with a warning.
        beam : int, default=1
            Width of the beam search, of which the best hypothesis is returned; 1 is greedy search.
        normalise : float, default=1.0
            The log-probability of a hypothesis is divided by its length to this power.
        copy_unknown : bool, default=False
            Replace unknown tokens by the source token with the largest weight.
        batch_size : int, default=64
            Texts translated at once; it affects the speed only.

        Returns
        -------
        list of Translation

        A text of more than 1,000 tokens is truncated, with a warning.
        """
        at_least_one(beam=beam, batch_size=batch_size)
        tokens = [self._encode(number, text) for number, text in enumerate(_texts(texts), 1)]
        found: list[Translation] = [NOTHING] * len(tokens)
        source_ids = Sentences([ids for _, ids in tokens])
        for rows in _by_length(source_ids, batch_size):
            for row, one in zip(rows, self._decode(source_ids, rows, beam, normalise), strict=True):
                found[row] = self._translation(one, tokens[row][0], copy_unknown)
        return found

    def align(self, sources: Sequence[str], targets: Sequence[str], *, batch_size: int = 64) -> list[Translation]:
        """Translations that equal the given targets, with the attention weights of predicting them.

        Parameters
        ----------
        sources : sequence of str
            Texts.
        targets : sequence of str
            Their translations, as many.
        batch_size : int, default=64
            Texts at once; it affects the speed only.

        Returns
        -------
        list of Translation
        """
        at_least_one(batch_size=batch_size)
        if len(_texts(sources)) != len(_texts(targets)):
            raise ValueError(f"sources and targets must have the same length, got {len(sources)} and {len(targets)}")
        read = [self._encode(number, text) for number, text in enumerate(sources, 1)]
        wanted = [self.target.encode(text)[:MAX_TOKENS] for text in targets]
        found: list[Translation] = [NOTHING] * len(read)
        source_ids, target_ids = Sentences([ids for _, ids in read]), Sentences(wanted)
        for rows in _by_length(source_ids, batch_size):
            batch = collate(source_ids, target_ids, rows).to(self.device)
            self.model.eval()
            with torch.no_grad():
                logits, weights = self.model(batch.source, batch.lengths, batch.tokens)
                log_probs = ENDS.predictable(logits).log_softmax(-1).gather(-1, batch.wanted[..., None])[..., 0].cpu()
            weights = weights.cpu()
            for number, row in enumerate(rows):
                steps = len(wanted[row]) + 1
                hypothesis = Hypothesis(
                    tuple(wanted[row]),
                    float(log_probs[number, :steps].mean()),
                    weights[number, :steps, : len(read[row][1])],
                )
                found[row] = self._translation(hypothesis, read[row][0], copy_unknown=False)._replace(text=targets[row])
        return found

    def save(self, path: PathLike, *, force: bool = False) -> None:
        """Write the translator to one file, atomically.

        Parameters
        ----------
        path : str or path
            The file.
        force : bool, default=False
            Replace an existing file.

        Raises
        ------
        TranslatorError
            A ValueError: it cannot be saved, or the path cannot be written.
        """
        description = {
            "architecture": asdict(self.architecture),
            "source": self.source.to_dict(),
            "target": self.target.to_dict(),
            "metadata": self.metadata,
        }
        arrays = {f"{name}.npy": part.detach().cpu().numpy() for name, part in self.model.state_dict().items()}
        write_sealed(path, _KIND, description, arrays, force=force)

    @classmethod
    def load(cls, path: PathLike) -> Translator:
        """A translator from a file that ``save`` wrote.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        Translator

        Raises
        ------
        TranslatorError
            A ValueError: the file is damaged, of a newer format, or something else.
        """
        description, arrays, _ = read_sealed(path, _KIND)
        try:
            source, target = (Vocabulary.from_dict(description[side]) for side in ("source", "target"))
            # Sizes in the file allocate no memory: the arrays must match them.
            with torch.device("meta"):
                model = Seq2Seq(Architecture(**description["architecture"]), len(source), len(target))
            tensors = {name.removesuffix(".npy"): torch.from_numpy(array) for name, array in arrays.items()}
            if any(part.dtype != torch.float32 for part in tensors.values()):
                raise ValueError("its arrays must be float32")
            model.load_state_dict(tensors, strict=True, assign=True)
        except (TypeError, ValueError, RuntimeError, OverflowError, AttributeError) as reason:
            raise _KIND.damaged(path, str(reason)) from None
        return cls(model, source, target, description["metadata"])

    def _encode(self, number: int, text: str) -> tuple[list[str], list[int]]:
        """Tokens of a text as strings and as ids."""
        tokens, ids = self.source.split(text), self.source.encode(text)
        if len(ids) > MAX_TOKENS:
            warnings.warn(
                f"text {number} has {len(ids):,} tokens and is truncated to the first {MAX_TOKENS:,}", stacklevel=3
            )
        return tokens[:MAX_TOKENS], ids[:MAX_TOKENS]

    def _decode(self, sources: Sentences, rows: list[int], width: int, normalise: float) -> list[Hypothesis]:
        self.model.eval()
        with torch.no_grad():
            encoded = self.model.encoder(sources.padded(rows).to(self.device), torch.from_numpy(sources.lengths[rows]))
        found = beam(self.model.decoder, encoded, ENDS, width=width, normalise=normalise)
        return [hypotheses[0] for hypotheses in found]

    def _translation(self, hypothesis: Hypothesis, source_tokens: list[str], copy_unknown: bool) -> Translation:
        weights = hypothesis.weights.numpy()
        tokens = [self.target.token(number) for number in hypothesis.tokens]
        if copy_unknown:
            tokens = [
                source_tokens[int(row.argmax())] if number == UNK else token
                for token, number, row in zip(tokens, hypothesis.tokens, weights, strict=False)
            ]
        ended = ("<eos>",) if len(weights) > len(tokens) else ()
        return Translation(self.target.join(tokens), (*tokens, *ended), tuple(source_tokens), weights, hypothesis.score)


def _texts(texts: Iterable[str]) -> Sequence[str]:
    if isinstance(texts, str):
        raise ValueError("texts must be a sequence of strings, got a single string")
    return list(texts)


def _by_length(texts: Sentences, batch_size: int) -> list[list[int]]:
    """Batches of the rows that are not empty, longest first."""
    rows = sorted(map(int, np.flatnonzero(texts.lengths)), key=lambda row: -texts.lengths[row])
    return [rows[at : at + batch_size] for at in range(0, len(rows), batch_size)]
