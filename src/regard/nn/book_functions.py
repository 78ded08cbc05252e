"""Functions of Dive into Deep Learning: BLEU of one sentence, and Nadaraya–Watson regression with any kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import exp

import torch
from torch import Tensor


def bleu(pred_seq: str, label_seq: str, k: int) -> float:
    """exp(min(0, 1 − len_label/len_pred)) Π_{n ≤ k} p_n^(1/2ⁿ), p_n being the precision of n-grams of words.

    Parameters
    ----------
    pred_seq : str
        A prediction, words separated by single spaces.
    label_seq : str
        Its reference, likewise.
    k : int
        The largest n; at most the number of predicted words is used, as in edition 1.0.

    Returns
    -------
    float
        Between 0 and 1. It differs from the BLEU of papers, which has other weights and is taken over a corpus:
        ``regard.seq2seq.quality``.

    >>> bleu("he is here", "he is calm", 2)
    0.6865890479690392
    """
    predicted, label = pred_seq.split(" "), label_seq.split(" ")
    score = exp(min(0.0, 1.0 - len(label) / len(predicted)))
    for n in range(1, min(k, len(predicted)) + 1):
        wanted, found = (
            Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1)) for words in (label, predicted)
        )
        score *= ((wanted & found).total() / found.total()) ** 0.5**n
    return score


def nadaraya_watson(
    x_train: Tensor, y_train: Tensor, x_val: Tensor, kernel: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Predictions Σ_i weight_i y_i with weight_i = K(x_i − x)/Σ_j K(x_j − x), and the weights.

    Parameters
    ----------
    x_train : tensor (n,)
        Training inputs.
    y_train : tensor (n,)
        Training outputs.
    x_val : tensor (m,)
        Where to predict.
    kernel : callable
        From differences to numbers of at least 0, elementwise.

    Returns
    -------
    tuple of tensors (m,) and (n, m)
        Predictions, and weights with a column for each prediction, as in the book.

    *Empty rows*: zeros, where the kernel is 0 for all keys; ``regard.pool`` has the limit, the nearest key.
    *Cost*: O(n·m).

    >>> x = torch.tensor([0.0, 1.0, 3.0])
    >>> nadaraya_watson(x, 2 * x, torch.tensor([0.5]), lambda u: (u.abs() < 1.0).float())[0].tolist()
    [1.0]
    """
    if not (x_train.ndim == y_train.ndim == x_val.ndim == 1 and len(x_train) == len(y_train)):
        shapes = ", ".join(str(tuple(part.shape)) for part in (x_train, y_train, x_val))
        raise ValueError(f"x_train, y_train and x_val must have shapes (n,), (n,) and (m,), got {shapes}")
    values = kernel(x_train - x_val[:, None]).to(x_train.dtype)  # (m, n)
    if bool((values < 0.0).any()):
        raise ValueError("kernel must return numbers of at least 0")
    mass = values.sum(-1, keepdim=True)
    weights = values / torch.where(mass > 0.0, mass, 1.0)
    return weights @ y_train, weights.T
