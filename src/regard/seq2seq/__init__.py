"""Sequence to sequence with attention: a decoder that looks back at the source at every step.

    vocabulary   texts into ids and back: words, characters, or sentencepiece
    encoder      a sentence into states, one per token
    decoder      looks back at them at every step, and says one token
    speaking     whole sentences, greedily or by beam search

One noun per file. Pairs of texts to learn from are in ``regard.data``.
"""

from regard.seq2seq.vocabulary import BOS, EOS, PAD, UNK, Vocabulary, token_alignment

__all__ = ["BOS", "EOS", "PAD", "UNK", "Vocabulary", "token_alignment"]
