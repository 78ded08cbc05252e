"""Sequence to sequence with attention: a decoder that attends to the source at every step.

    vocabulary     texts to token ids and back: words, characters, or sentencepiece
    encoder        a sentence to states, one per token
    decoder        attends to them at every step, and predicts one token
    transformer    an encoder and a decoder without recurrence
    model          both, and the settings that define them
    decoding       whole sentences, greedily or by beam search
    translator     texts in, texts out, with the attention weights of every token
    alignment      what those weights say: links, error rates, entropy, text
    pair_training  from pairs of texts to a translator, in one call
    trainer        gradient descent for any module, independent of translation
    export         a model as a torch.export program

Pairs of texts to learn from are in ``regard.data``.

>>> PAD, UNK, BOS, EOS
(0, 1, 2, 3)
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
from regard.seq2seq.decoding import beam, greedy
from regard.seq2seq.encoder import Encoder
from regard.seq2seq.export import export_torchscript
from regard.seq2seq.measures import corpus_bleu, quality
from regard.seq2seq.model import Architecture, Seq2Seq
from regard.seq2seq.pair_training import Learned, Lesson, learn
from regard.seq2seq.trainer import Trainer
from regard.seq2seq.training_settings import Training
from regard.seq2seq.transformer import TransformerArchitecture
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
    "TransformerArchitecture",
    "Translation",
    "Translator",
    "Vocabulary",
    "as_text",
    "beam",
    "corpus_bleu",
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
