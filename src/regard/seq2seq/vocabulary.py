"""A vocabulary: texts to token ids and back, by words, by characters, or by sentencepiece's subwords of two kinds.

    id   0     1     2     3     4 …
         pad   unk   bos   eos   tokens, the most frequent first, ties in the order of their text

The four special ids have no text: a literal "<pad>" in a sentence is an ordinary word, and no text encodes to pad, bos
or eos. Words are split from punctuation ("l'homme." → "l'" "homme" "."; "man's" → "man" "'s"), and joined again with
the usual spacing; by characters, no text is lost.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import takewhile
from typing import Any

from regard.data.text_pairs import Pairs
from regard.nn.argument_checks import at_least_one, one_of

PAD, UNK, BOS, EOS = range(4)
SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>")  # used for display only, never parsed
UNITS = ("words", "characters", "sentencepiece", "bpe")
# Units whose tokens sentencepiece learns, and its name for the kind of model.
_PIECES = {"sentencepiece": "unigram", "bpe": "bpe"}

# Numbers with points and commas; French elisions; words, including inner hyphens; an apostrophe and what follows it;
# any other character except white space.
_LETTER = r"[\w\u0300-\u036f]"
_WORD = re.compile(
    r"\d+(?:[.,]\d+)+(?!\w)"
    rf"|(?<!\w)(?:[cdjlmnst]|qu)['’](?=\w)"
    rf"|{_LETTER}+(?:-{_LETTER}+)*"
    rf"|(?<={_LETTER})['’]{_LETTER}+"
    r"|\S",
    re.IGNORECASE,
)
_NO_SPACE_BEFORE = frozenset(",.;:!?)]}%…")
_NO_SPACE_AFTER = frozenset("([{")
_SPACE_MARK = "▁"  # sentencepiece's symbol for a space


@dataclass(frozen=True)
class Vocabulary:
    """The known tokens, and how to split a text into them. Make it by ``Vocabulary.learn``.

    Parameters
    ----------
    unit : {"words", "characters", "sentencepiece", "bpe"}
        How texts are split.
    tokens : tuple of str
        Those with ids 4, 5, ….
    lower : bool, default=False
        Texts are lowercased first.
    model : bytes, default=b""
        Serialised sentencepiece model.

    >>> words = Vocabulary.learn(["the man's dog.", "the cat"])
    >>> words.encode("the dog <pad>"), words.decode([4, 9, 5, 8, 6])
    ([4, 8, 1, 1, 1], "the man's dog.")
    """

    unit: str
    tokens: tuple[str, ...]  # ids 4, 5, …
    lower: bool = False  # texts are lowercased first
    model: bytes = b""  # serialised sentencepiece model

    def __post_init__(self) -> None:
        one_of(UNITS, unit=self.unit)
        if (self.unit in _PIECES) != bool(self.model):
            raise ValueError(
                f"model must be given if and only if unit is 'sentencepiece' or 'bpe', got unit {self.unit!r}"
            )
        if len(self._ids) != len(self.tokens):
            again = next(token for token, count in Counter(self.tokens).items() if count > 1)
            raise ValueError(f"tokens must be distinct, got {again!r} more than once")

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        unit: str = "words",
        *,
        min_count: int = 1,
        max_size: int | None = None,
        lower: bool = False,
    ) -> Vocabulary:
        """The vocabulary of some texts; the order of the texts does not matter for words and characters.

        Parameters
        ----------
        texts : iterable of str
            The training texts.
        unit : {"words", "characters", "sentencepiece", "bpe"}, default="words"
            "sentencepiece" is its unigram model, "bpe" byte-pair encoding; both need ``pip install 'regard[seq2seq]'``.
        min_count : int, default=1
            Tokens with a lower count are left out; sentencepiece has its own rule and accepts 1 only.
        max_size : int, default=None
            Maximum number of ids, including the four special ones; sentencepiece requires it, and may return fewer if
            there are too few texts.
        lower : bool, default=False
            Lowercase all texts.

        Returns
        -------
        Vocabulary
        """
        one_of(UNITS, unit=unit)
        at_least_one(min_count=min_count)
        if isinstance(texts, str):
            raise ValueError("texts must be a sequence of strings, got a single string")
        if max_size is not None and max_size <= len(SPECIALS):
            raise ValueError(f"max_size must be above {len(SPECIALS)}, got {max_size}")
        if unit in _PIECES:
            if max_size is None or min_count != 1:
                raise ValueError(
                    f"unit {unit!r} needs max_size and min_count=1, got max_size={max_size} and min_count={min_count}"
                )
            model = _learn_pieces([_plain(text, lower) for text in texts], max_size, _PIECES[unit])
            learned = _loaded(model)
            pieces = tuple(learned.IdToPiece(number) for number in range(len(SPECIALS), learned.GetPieceSize()))
            return cls(unit, pieces, lower, model)
        bare = cls(unit, (), lower)
        counts = Counter(token for text in texts for token in bare.split(text))
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        tokens = [token for token, count in ranked if count >= min_count]
        if not tokens:
            raise ValueError(f"texts contain no token with a count of at least min_count={min_count}")
        return cls(unit, tuple(tokens[: None if max_size is None else max_size - len(SPECIALS)]), lower)

    def __len__(self) -> int:
        return len(SPECIALS) + len(self.tokens)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.tokens, len(SPECIALS))}

    @cached_property
    def _processor(self) -> Any:
        return _loaded(self.model)

    def split(self, text: str) -> list[str]:
        """The tokens of a text as strings, known or not.

        Parameters
        ----------
        text : str
            Any text.

        Returns
        -------
        list of str
        """
        if self.unit in _PIECES:
            return list(self._processor.EncodeAsPieces(_plain(text, self.lower)))
        return [_plain(found, self.lower) for found, _ in self._found(text)]

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without bos and eos; ``UNK`` for unknown tokens. Empty for an empty text.

        Parameters
        ----------
        text : str
            Any text.

        Returns
        -------
        list of int
        """
        if self.unit in _PIECES:
            return list(self._processor.EncodeAsIds(_plain(text, self.lower)))
        return [self._ids.get(token, UNK) for token in self.split(text)]

    def sampled(self, texts: Sequence[str], alpha: float, seed: int) -> list[list[int]]:
        """The ids of each text in a random segmentation, for training: the same for the same seed.

        Parameters
        ----------
        texts : sequence of str
            Any texts; of a vocabulary of units "bpe" or "sentencepiece".
        alpha : float
            For "bpe" the probability that a merge is left out (BPE dropout); for "sentencepiece" the exponent of the
            segmentations' probabilities, the smaller the more uniform.
        seed : int
            Of the random numbers.

        Returns
        -------
        list of list of int
        """
        if self.unit not in _PIECES:
            raise ValueError(f"segmentations are sampled for units 'sentencepiece' and 'bpe', got {self.unit!r}")
        _sentencepiece().set_random_generator_seed(seed)
        # In one thread, which has a random generator of its own, the result is reproducible.
        plain = [_plain(text, self.lower) for text in texts]
        found: list[list[int]] = self._processor.Encode(
            plain, out_type=int, enable_sampling=True, nbest_size=-1, alpha=alpha, num_threads=1
        )
        return found

    def token(self, number: int) -> str:
        """The text of one id; the special ones are shown as "<pad>", "<unk>", "<bos>" and "<eos>".

        Parameters
        ----------
        number : int
            An id.

        Returns
        -------
        str
        """
        if not 0 <= number < len(self):
            raise ValueError(f"id must lie between 0 and {len(self) - 1}, got {number}")
        return SPECIALS[number] if number < len(SPECIALS) else self.tokens[number - len(SPECIALS)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids up to the first eos; pad and bos are left out, an unknown token is "<unk>".

        Parameters
        ----------
        ids : iterable of int
            Token ids.

        Returns
        -------
        str
        """
        before_end = takewhile(lambda number: number != EOS, ids)
        return self.join([self.token(int(number)) for number in before_end if number not in (PAD, BOS)])

    def join(self, tokens: Sequence[str]) -> str:
        """Tokens as one text, with the usual spacing: the inverse of ``split`` up to white space.

        Parameters
        ----------
        tokens : sequence of str
            Tokens, as ``split`` gives them.

        Returns
        -------
        str
        """
        if self.unit == "characters":
            return "".join(tokens)
        if self.unit in _PIECES:
            return "".join(tokens).replace(_SPACE_MARK, " ").strip()
        return _spaced(tokens)

    def positions(self, text: str) -> list[int]:
        """For each character of the text, the number of its token, or -1 between tokens.

        Parameters
        ----------
        text : str
            Any text; of a vocabulary of words or characters.

        Returns
        -------
        list of int
        """
        if self.unit in _PIECES:
            raise ValueError(f"positions are available for units 'words' and 'characters', got {self.unit!r}")
        positions = [-1] * len(text)
        for number, (found, start) in enumerate(self._found(text)):
            positions[start : start + len(found)] = [number] * len(found)
        return positions

    def _found(self, text: str) -> list[tuple[str, int]]:
        """Each token as written in the text, and its first position."""
        _check_text(text)
        if self.unit == "characters":
            return [(character, start) for start, character in enumerate(text)]
        return [(match.group(), match.start()) for match in _WORD.finditer(text)]

    def to_dict(self) -> dict[str, Any]:
        """The vocabulary as values that JSON can represent.

        Returns
        -------
        dict
        """
        return {
            "unit": self.unit,
            "lower": self.lower,
            "tokens": list(self.tokens),
            "model": base64.b64encode(self.model).decode("ascii"),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Vocabulary:
        """The vocabulary from the result of ``to_dict``.

        Parameters
        ----------
        plain : dict
            As ``to_dict`` gives it.

        Returns
        -------
        Vocabulary

        Raises
        ------
        ValueError
            For anything else.
        """
        kinds: dict[str, type] = {"unit": str, "lower": bool, "tokens": list, "model": str}
        if not isinstance(plain, Mapping) or set(plain) != set(kinds):
            got = ", ".join(map(str, plain)) if isinstance(plain, Mapping) else type(plain).__name__
            raise ValueError(f"a vocabulary must have exactly the entries {', '.join(kinds)}, got {got}")
        for name, kind in kinds.items():
            if not isinstance(plain[name], kind):
                raise ValueError(f"{name} of a vocabulary must be {kind.__name__}, got {type(plain[name]).__name__}")
        if not all(isinstance(token, str) for token in plain["tokens"]):
            raise ValueError("tokens of a vocabulary must be strings")
        try:
            model = base64.b64decode(plain["model"], validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("model of a vocabulary is not base64") from None
        return cls(plain["unit"], tuple(plain["tokens"]), plain["lower"], model)


def token_alignment(
    source: Vocabulary, target: Vocabulary, source_text: str, target_text: str, alignment: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """A gold alignment in tokens: for each target token the source tokens its characters come from, none for -1.

    Parameters
    ----------
    source : Vocabulary
        By words or by characters.
    target : Vocabulary
        The same.
    source_text : str
        Source of one pair of ``regard.data.Pairs``.
    target_text : str
        Its target.
    alignment : sequence of int
        Its alignment.

    Returns
    -------
    tuple of tuples of int

    >>> words, letters = Vocabulary("words", ()), Vocabulary("characters", ())
    >>> token_alignment(words, letters, "three hundred and twelve", "312", (0, 18, 18))
    ((0,), (3,), (3,))
    """
    if len(alignment) != len(target_text):
        raise ValueError(
            "alignment must have one position per character of target_text, got "
            f"{len(alignment)} for {len(target_text)}"
        )
    source_tokens = source.positions(source_text)
    found: list[set[int]] = [set() for _ in target.split(target_text)]
    for number, position in zip(target.positions(target_text), alignment, strict=True):
        if number >= 0 and position >= 0 and source_tokens[position] >= 0:
            found[number].add(source_tokens[position])
    return tuple(tuple(sorted(numbers)) for numbers in found)


def gold_alignments(source: Vocabulary, target: Vocabulary, pairs: Pairs) -> list[tuple[tuple[int, ...], ...]] | None:
    """``token_alignment`` of every pair; None if the pairs have no alignments, or tokens no positions."""
    if pairs.alignment is None or {source.unit, target.unit} & {*_PIECES}:
        return None
    rows = zip(pairs.source, pairs.target, pairs.alignment, strict=True)
    return [token_alignment(source, target, *row) for row in rows]


def _spaced(tokens: Sequence[str]) -> str:
    """Words and punctuation with the usual spaces between them; double quotes open and close alternately."""
    text, glue, quotes = "", True, 0
    for token in tokens:
        closing = token == '"' and quotes % 2 == 1
        follows = token in _NO_SPACE_BEFORE or closing or (len(token) > 1 and token[0] in "'’")
        text += token if glue or follows else f" {token}"
        quotes += token == '"'
        glue = token in _NO_SPACE_AFTER or (token == '"' and not closing) or (len(token) > 1 and token[-1] in "'’")
    return text


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise ValueError(f"text must be a string, got {type(text).__name__}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as reason:
        raise ValueError(
            f"text contains an unpaired surrogate (U+{ord(text[reason.start]):04X}) at character {reason.start + 1}"
        ) from None


def _plain(text: str, lower: bool) -> str:
    _check_text(text)
    return text.lower() if lower else text


def _sentencepiece() -> Any:
    try:
        return import_module("sentencepiece")
    except ImportError:
        raise ValueError(
            "units 'sentencepiece' and 'bpe' need sentencepiece; run pip install 'regard[seq2seq]'"
        ) from None


def _learn_pieces(texts: list[str], max_size: int, kind: str) -> bytes:
    written = io.BytesIO()
    train: Callable[..., None] = _sentencepiece().SentencePieceTrainer.train
    try:
        train(
            sentence_iterator=iter(texts),
            model_writer=written,
            model_type=kind,
            vocab_size=max_size,
            hard_vocab_limit=False,
            character_coverage=1.0,
            # With one thread the result is reproducible.
            num_threads=1,
            minloglevel=2,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
        )
    except (RuntimeError, OSError) as reason:
        raise ValueError(f"sentencepiece cannot learn from these texts: {reason}") from None
    return written.getvalue()


def _loaded(model: bytes) -> Any:
    processor = _sentencepiece().SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except RuntimeError as reason:
        raise ValueError(f"model is not a valid sentencepiece model ({reason})") from None
    return processor
