"""The notes' name: additive attention as a regressor over a training set."""

from __future__ import annotations

from torch import Tensor, nn

from regard.nn.additive import additive, projected
from regard.nn.inputs import prepared
from regard.nn.pooling import attend
from regard.nn.softmaxes import softmax


class AdditiveAttentionReg(nn.Module):
    """Kernel regression with a learned score: Σ_k softmax_k(vᵀ tanh(W_q q + W_k x_k)) y_k.

    Parameters
    ----------
    input_size : features of an input; queries and keys are inputs both.
    hidden_size : units of the hidden layer.

    *Empty rows*: zeros. *Cost*: O(Q·K·hidden_size) time and memory.

    >>> import torch
    >>> net = AdditiveAttentionReg(input_size=1, hidden_size=8)
    >>> net(torch.zeros(5, 1), torch.zeros(3, 1), torch.tensor([[1.0], [2.0], [6.0]]))[0].round().tolist()
    [3.0]
    """

    attention_weights: Tensor | None

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.W_q = nn.Linear(input_size, hidden_size, bias=False)
        self.W_k = nn.Linear(input_size, hidden_size, bias=False)
        self.v = nn.Linear(hidden_size, 1, bias=False)
        self.attention_weights = None

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, *, attn_mask: Tensor | None = None) -> Tensor:
        """Predict: queries (Q, input_size), keys (K, input_size) and values (K, P) of the training set; returns (Q, P).

        attn_mask : (Q, K), True = may attend. In training on the set itself, ``~torch.eye(K, dtype=torch.bool)``
            keeps every row from looking at its own answer.
        """
        inputs = prepared(queries, keys, values, attn_mask=attn_mask)
        output, weights = attend(self._score, inputs, softmax, nn.Identity())
        self.attention_weights = weights.detach()  # (Q, K)
        return output

    def _score(self, queries: Tensor, keys: Tensor) -> Tensor:
        return additive(projected(self.W_q, queries), projected(self.W_k, keys), self.v)
