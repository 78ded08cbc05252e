"""A translator: a model with its two vocabularies. Texts in, texts out, with the attention weights of every token."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.overrides import TorchFunctionMode

from regard.data.files import PathLike
from regard.data.sealed import FileKind, read_sealed, write_sealed
from regard.nn.argument_checks import at_least_one
from regard.seq2seq.decoding import Ends, Hypothesis, beam
from regard.seq2seq.ensemble import Ensemble
from regard.seq2seq.model import AnyArchitecture, Seq2Seq, as_plain, from_plain
from regard.seq2seq.token_batches import Sentences, TokenBatch, collate
from regard.seq2seq.transformer import TransformerTargetDecoder
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


class SkippedInitialisation(TorchFunctionMode):
    """A context in which modules are created without initialising their parameters.

    On the meta device there is nothing to initialise, and drawing normal numbers there, or dividing them, imports
    torch._dynamo, which takes seconds.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        divides = getattr(func, "__name__", "") in ("div", "__truediv__")
        if divides or getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


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

    @property
    def ended(self) -> bool:
        """Whether the last of the tokens is the end token; it is not if the translation was truncated."""
        return self.tokens[-1:] == ("<eos>",)


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
    >>> from regard.seq2seq import Architecture
    >>> small = Translator(Seq2Seq(Architecture(4, 4), len(letters), len(letters)), letters, letters)
    >>> small.translate(["", "ba"])[0].text
    ''
    """

    def __init__(
        self, model: Seq2Seq | Ensemble, source: Vocabulary, target: Vocabulary, metadata: dict[str, Any] | None = None
    ) -> None:
        self.model, self.source, self.target = model, source, target
        self.metadata = metadata or {}

    @property
    def architecture(self) -> AnyArchitecture:
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
        options: Any = {"normalise": normalise, "copy_unknown": copy_unknown, "batch_size": batch_size}
        return [found[0] for found in self.n_best(texts, 1, beam=beam, **options)]

    def n_best(
        self,
        texts: Sequence[str],
        count: int,
        *,
        beam: int | None = None,
        normalise: float = 1.0,
        copy_unknown: bool = False,
        batch_size: int = 64,
    ) -> list[list[Translation]]:
        """Several translations per text, best first by their ``score``; an empty text has one, which is empty.

        Parameters
        ----------
        texts : sequence of str
            A text of more than 1,000 tokens is truncated, with a warning.
        count : int
            At most so many translations per text.
        beam : int, default=None
            Width of the beam search, at least ``count``; None is ``count``.
        normalise, copy_unknown, batch_size : as in ``translate``
            How hypotheses are compared, and unknown tokens replaced.

        Returns
        -------
        list of list of Translation
        """
        beam = count if beam is None else beam
        at_least_one(count=count, beam=beam, batch_size=batch_size)
        if beam < count:
            raise ValueError(f"beam must be at least count={count}, got {beam}")
        tokens = [self._encode(number, text) for number, text in enumerate(_texts(texts), 1)]
        found: list[list[Translation]] = [[NOTHING] for _ in tokens]
        source_ids = Sentences([ids for _, ids in tokens])
        for rows in _by_length(source_ids, batch_size):
            for row, several in zip(rows, self._decode(source_ids, rows, beam, normalise), strict=True):
                found[row] = [self._translation(one, tokens[row][0], copy_unknown) for one in several[:count]]
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
        _check_pairs(sources, targets)
        read = [self._encode(number, text) for number, text in enumerate(sources, 1)]
        wanted = [self.target.encode(text)[:MAX_TOKENS] for text in targets]
        found: list[Translation] = [NOTHING] * len(read)
        source_ids, target_ids = Sentences([ids for _, ids in read]), Sentences(wanted)
        for rows, batch in self._batches(source_ids, target_ids, batch_size):
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

    def source_weights(
        self, sources: Sequence[str], targets: Sequence[str], *, batch_size: int = 64
    ) -> list[NDArray[Any]]:
        """The weights (layers, heads, T, S) of every attention of a transformer to the source, for given targets.

        T are the tokens of the target, without the end token. Where one of these is to be the alignment, see
        ``Seq2Seq.align_by``.

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
        list of array (layers, heads, T, S)

        Raises
        ------
        ValueError
            If the model is no transformer.
        """
        decoder = self.model.decoder
        if not isinstance(decoder, TransformerTargetDecoder):
            raise ValueError("source_weights needs a transformer; the weights of other models are those of align")
        _check_pairs(sources, targets)
        both = (
            Sentences([self.source.encode(text) for text in sources]),
            Sentences([self.target.encode(text) for text in targets]),
        )
        found: list[NDArray[Any]] = [np.zeros((0, 0, 0, 0), np.float32)] * len(sources)
        for rows, batch in self._batches(*both, batch_size):
            with torch.no_grad():
                encoded: Any = self.model.encoder(batch.source, batch.lengths)
                weights = decoder.source_weights(batch.tokens, encoded).cpu().numpy()
            for number, row in enumerate(rows):
                found[row] = weights[:, number, :, : both[1].lengths[row], : both[0].lengths[row]]
        return found

    @classmethod
    def ensemble(cls, translators: Sequence[Translator]) -> Translator:
        """Translators with the same vocabularies as one, whose probabilities are the mean of theirs.

        It cannot be saved.

        Parameters
        ----------
        translators : sequence of Translator
            Their architectures may differ.

        Returns
        -------
        Translator

        Raises
        ------
        ValueError
            If there is none, or their vocabularies differ.
        """
        first = _first_of_same_vocabularies(translators)
        return cls(Ensemble([one.model for one in translators]), first.source, first.target)  # type: ignore[misc]

    @classmethod
    def average(cls, translators: Sequence[Translator]) -> Translator:
        """A translator whose weights are the mean of those of others, such as several checkpoints of one training.

        Parameters
        ----------
        translators : sequence of Translator
            Of one architecture.

        Returns
        -------
        Translator

        Raises
        ------
        ValueError
            If there is none, or their architectures or vocabularies differ.
        """
        first = _first_of_same_vocabularies(translators)
        if any(one.architecture != first.architecture for one in translators):
            raise ValueError("translators must have the same architecture to be averaged")
        states = [one.model.state_dict() for one in translators]
        mean = {name: torch.stack([state[name].double() for state in states]).mean(0) for name in states[0]}
        model = deepcopy(first.model)
        model.load_state_dict(mean)
        return cls(model, first.source, first.target, {"averaged": len(translators)})

    def digest(self) -> str:
        """The SHA-256 of weights and vocabularies.

        Returns
        -------
        str
            In hexadecimal digits.
        """
        digest = hashlib.sha256(json.dumps([self.source.to_dict(), self.target.to_dict()]).encode())
        for name, part in self.model.state_dict().items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(part.detach().cpu().numpy()).tobytes())
        return digest.hexdigest()

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
        if isinstance(self.model, Ensemble):
            raise TranslatorError(f"{path}: an ensemble cannot be saved; save its translators")
        description = {
            "architecture": as_plain(self.architecture),
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
            with torch.device("meta"), SkippedInitialisation():
                model = Seq2Seq(from_plain(description["architecture"]), len(source), len(target))
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

    def _batches(
        self, source_ids: Sentences, target_ids: Sentences, batch_size: int
    ) -> Iterator[tuple[list[int], TokenBatch]]:
        """Rows of similar length, and their tokens on the device of the model, which is in evaluation mode."""
        at_least_one(batch_size=batch_size)
        self.model.eval()
        for rows in _by_length(source_ids, batch_size):
            yield rows, collate(source_ids, target_ids, rows).to(self.device)

    def _decode(self, sources: Sentences, rows: list[int], width: int, normalise: float) -> list[list[Hypothesis]]:
        self.model.eval()
        with torch.no_grad():
            encoded = self.model.encoder(sources.padded(rows).to(self.device), torch.from_numpy(sources.lengths[rows]))
        return beam(self.model.decoder, encoded, ENDS, width=width, normalise=normalise)

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


def _first_of_same_vocabularies(translators: Sequence[Translator]) -> Translator:
    """The first one. Raises ValueError unless there is one, and all have its vocabularies."""
    if not translators:
        raise ValueError("translators must contain at least one translator")
    first = translators[0]
    for number, one in enumerate(translators[1:], 2):
        if (one.source, one.target) != (first.source, first.target):
            raise ValueError(f"translator {number} has other vocabularies than the first")
    return first


def _check_pairs(sources: Sequence[str], targets: Sequence[str]) -> None:
    if len(_texts(sources)) != len(_texts(targets)):
        raise ValueError(f"sources and targets must have the same length, got {len(sources)} and {len(targets)}")


def _texts(texts: Iterable[str]) -> Sequence[str]:
    if isinstance(texts, str):
        raise ValueError("texts must be a sequence of strings, got a single string")
    return list(texts)


def _by_length(texts: Sentences, batch_size: int) -> list[list[int]]:
    """Batches of the rows that are not empty, longest first."""
    rows = sorted(map(int, np.flatnonzero(texts.lengths)), key=lambda row: -texts.lengths[row])
    return [rows[at : at + batch_size] for at in range(0, len(rows), batch_size)]
