"""A plain decoder with attention, as textbooks write it: the other side of ``benchmarks/seq2seq.py``.

It computes what ``regard.seq2seq`` computes, with the same sizes and the same parameters, in the most direct way:

- every sentence is padded to the longest of the data set, and the encoder reads the padding;
- at every step the last token is embedded, the mask is made from the lengths, the keys are projected, context and
  embedding are put side by side, and the recurrent network is called for one step;
- sentences are translated one by one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TextbookEncoder(nn.Module):
    """Embedding and a GRU in both directions, over all there is, padding included."""

    def __init__(self, vocabulary_size: int, embed_size: int, hidden_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, embed_size)
        self.rnn = nn.GRU(embed_size, hidden_size, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * hidden_size, hidden_size)

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        outputs, last = self.rnn(self.embedding(source))
        state = torch.tanh(self.bridge(torch.cat([last[0], last[1]], dim=-1)))
        return outputs, state.unsqueeze(0)


class TextbookAttention(nn.Module):
    """w_v·tanh(W_q q + W_k k), softmax over the keys before each length, and the average of the values."""

    def __init__(self, query_size: int, key_size: int, hidden_size: int) -> None:
        super().__init__()
        self.W_q = nn.Linear(query_size, hidden_size, bias=False)
        self.W_k = nn.Linear(key_size, hidden_size, bias=False)
        self.w_v = nn.Linear(hidden_size, 1, bias=False)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor) -> tuple[Tensor, Tensor]:
        queries, keys = self.W_q(queries), self.W_k(keys)
        features = torch.tanh(queries.unsqueeze(2) + keys.unsqueeze(1))
        scores = self.w_v(features).squeeze(-1)
        mask = torch.arange(scores.shape[-1], device=scores.device)[None, :] < valid_lens[:, None]
        weights = torch.softmax(scores.masked_fill(~mask.unsqueeze(1), -1e6), dim=-1)
        return torch.bmm(weights, values), weights


class TextbookDecoder(nn.Module):
    """One GRU; at every step the state is the query, and the context joins the embedding on its way in."""

    def __init__(self, vocabulary_size: int, embed_size: int, hidden_size: int) -> None:
        super().__init__()
        self.attention = TextbookAttention(hidden_size, 2 * hidden_size, hidden_size)
        self.embedding = nn.Embedding(vocabulary_size, embed_size)
        self.rnn = nn.GRU(embed_size + 2 * hidden_size, hidden_size, batch_first=True)
        self.join = nn.Linear(hidden_size + 2 * hidden_size + embed_size, embed_size)
        self.dense = nn.Linear(embed_size, vocabulary_size)

    def step(self, token: Tensor, outputs: Tensor, state: Tensor, valid_lens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query = state[-1].unsqueeze(1)
        context, weights = self.attention(query, outputs, outputs, valid_lens)
        embedded = self.embedding(token).unsqueeze(1)
        out, state = self.rnn(torch.cat([context, embedded], dim=-1), state)
        return torch.cat([out, context, embedded], dim=-1), state, weights

    def forward(self, tokens: Tensor, outputs: Tensor, state: Tensor, valid_lens: Tensor) -> Tensor:
        steps = []
        for t in range(tokens.shape[1]):
            joined, state, _ = self.step(tokens[:, t], outputs, state, valid_lens)
            steps.append(joined)
        return self.dense(torch.tanh(self.join(torch.cat(steps, dim=1))))


class Textbook(nn.Module):
    """Encoder and decoder."""

    def __init__(self, source_size: int, target_size: int, embed_size: int, hidden_size: int) -> None:
        super().__init__()
        self.encoder = TextbookEncoder(source_size, embed_size, hidden_size)
        self.decoder = TextbookDecoder(target_size, embed_size, hidden_size)

    def forward(self, source: Tensor, valid_lens: Tensor, tokens: Tensor) -> Tensor:
        outputs, state = self.encoder(source)
        return self.decoder(tokens, outputs, state, valid_lens)

    @torch.no_grad()
    def predict(self, source: Tensor, valid_lens: Tensor, steps: int, begin: int, end: int) -> list[list[int]]:
        """The most probable token, step after step, until all sentences have ended or ``steps`` are made."""
        outputs, state = self.encoder(source)
        token = torch.full((len(source),), begin, device=source.device)
        said: list[list[int]] = [[] for _ in source]
        ended = [False] * len(source)
        for _ in range(steps):
            joined, state, _ = self.decoder.step(token, outputs, state, valid_lens)
            token = self.decoder.dense(torch.tanh(self.decoder.join(joined))).argmax(dim=-1).squeeze(1)
            for row, number in enumerate(token.tolist()):
                ended[row] = ended[row] or number == end
                if not ended[row]:
                    said[row].append(number)
            if all(ended):
                break
        return said
