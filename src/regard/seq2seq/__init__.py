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

One noun per file. Pairs of texts to learn from are in ``regard.data``.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "regard.seq2seq needs torch, which is not installed; pip install 'regard[seq2seq]' brings it",
        name=missing.name,
    ) from missing

from regard.seq2seq.alignment import as_text, entropy, error_rate, links, pharaoh
from regard.seq2seq.decoder import AttentionDecoder
from regard.seq2seq.encoder import Encoder
from regard.seq2seq.export import export_torchscript
from regard.seq2seq.learning import Learned, Lesson, learn
from regard.seq2seq.measures import quality
from regard.seq2seq.model import Architecture, Seq2Seq
from regard.seq2seq.speaking import beam, greedy
from regard.seq2seq.trainer import Trainer
from regard.seq2seq.training import Training
from regard.seq2seq.translator import Translation, Translator
from regard.seq2seq.vocabulary import BOS, EOS, PAD, UNK, Vocabulary, token_alignment

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
