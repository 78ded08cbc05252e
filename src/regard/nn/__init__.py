"""Attention as torch modules with trainable parameters.

Batch first, ``forward(queries, keys, values, valid_lens=None, *, attn_mask=None, need_weights=False)``; in masks,
True = may attend. Needs numpy and torch only.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "regard.nn needs torch, which is not installed; pip install 'regard[nn]' brings it", name=missing.name
    ) from missing

from regard.nn.additive import AdditiveScore, ConcatenatedScore
from regard.nn.attention_pooling import Attended, AttentionPooling
from regard.nn.book import AdditiveAttention, AdditiveAttentionReg, DotProductAttention, NWKernelRegression
from regard.nn.book_functions import bleu, nadaraya_watson
from regard.nn.book_recurrent import EncoderDecoder, Seq2SeqAttentionDecoder, Seq2SeqEncoder
from regard.nn.book_transformer import (
    AddNorm,
    MultiHeadAttention,
    PositionalEncoding,
    PositionWiseFFN,
    TransformerDecoder,
    TransformerDecoderBlock,
    TransformerEncoder,
    TransformerEncoderBlock,
)
from regard.nn.hard_attention import HardAttention, HardPooled
from regard.nn.masks import from_key_padding_mask
from regard.nn.multi_heads import MultiHead, multi_head
from regard.nn.reinforce_baselines import LearnedBaseline, LeaveOneOut, MovingAverage
from regard.nn.score_layers import BilinearScore, DotProductScore, GaussianScore
from regard.nn.softmaxes import entmax15, masked_softmax, softmax, sparsemax

__all__ = [
    "AddNorm",
    "AdditiveAttention",
    "AdditiveAttentionReg",
    "AdditiveScore",
    "Attended",
    "AttentionPooling",
    "BilinearScore",
    "ConcatenatedScore",
    "DotProductAttention",
    "DotProductScore",
    "EncoderDecoder",
    "GaussianScore",
    "HardAttention",
    "HardPooled",
    "LearnedBaseline",
    "LeaveOneOut",
    "MovingAverage",
    "MultiHead",
    "MultiHeadAttention",
    "NWKernelRegression",
    "PositionWiseFFN",
    "PositionalEncoding",
    "Seq2SeqAttentionDecoder",
    "Seq2SeqEncoder",
    "TransformerDecoder",
    "TransformerDecoderBlock",
    "TransformerEncoder",
    "TransformerEncoderBlock",
    "bleu",
    "entmax15",
    "from_key_padding_mask",
    "masked_softmax",
    "multi_head",
    "nadaraya_watson",
    "softmax",
    "sparsemax",
]
