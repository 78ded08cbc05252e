"""Sequence to sequence with attention: a decoder that looks back at the source at every step.

    vocabulary   texts into ids and back: words, characters, or sentencepiece
    encoder      a sentence into states, one per token
    decoder      looks back at them at every step, and says one token
    model        both, and the few numbers that shape them
    speaking     whole sentences, greedily or by beam search
    translator   texts in, texts out, and where each token was looked for
    alignment    what those looks say: links, error rates, entropy, text
    learning     from pairs of texts to a translator, in one call
    trainer      walks any module down its loss; it knows nothing of translation

One noun per file. Pairs of texts to learn from are in ``regard.data``. Names are imported when they are asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "regard.seq2seq needs torch, which is not installed; pip install 'regard[seq2seq]' brings it",
        name=missing.name,
    ) from missing

if TYPE_CHECKING:
    from regard.seq2seq.alignment import as_text, entropy, error_rate, links, pharaoh
    from regard.seq2seq.decoder import AttentionDecoder
    from regard.seq2seq.encoder import Encoder
    from regard.seq2seq.export import export_torchscript
    from regard.seq2seq.learning import Learned, learn
    from regard.seq2seq.measures import quality
    from regard.seq2seq.model import Architecture, Seq2Seq
    from regard.seq2seq.speaking import beam, greedy
    from regard.seq2seq.task import Lesson
    from regard.seq2seq.trainer import Trainer
    from regard.seq2seq.training import Training
    from regard.seq2seq.translator import Translation, Translator
    from regard.seq2seq.vocabulary import BOS, EOS, PAD, UNK, Vocabulary, token_alignment

_HOMES = {
    "alignment": ("as_text", "entropy", "error_rate", "links", "pharaoh"),
    "decoder": ("AttentionDecoder",),
    "encoder": ("Encoder",),
    "export": ("export_torchscript",),
    "learning": ("Learned", "learn"),
    "model": ("Architecture", "Seq2Seq"),
    "measures": ("quality",),
    "speaking": ("beam", "greedy"),
    "task": ("Lesson",),
    "trainer": ("Trainer",),
    "training": ("Training",),
    "translator": ("Translation", "Translator"),
    "vocabulary": ("BOS", "EOS", "PAD", "UNK", "Vocabulary", "token_alignment"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Architecture",
    "AttentionDecoder",
    "Encoder",
    "Learned",
    "Lesson",
    "Seq2Seq",
    "Trainer",
    "Training",
    "Translation",
    "Translator",
    "Vocabulary",
    "as_text",
    "beam",
    "entropy",
    "error_rate",
    "export_torchscript",
    "greedy",
    "learn",
    "links",
    "pharaoh",
    "quality",
    "token_alignment",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
