"""A greedy model in a file of its own: TorchScript that runs without this package, and without Python.

    program = torch.jit.load(path)
    tokens, lengths, weights = program(source, lengths)

``source`` (B, S) holds ids and ``lengths`` (B,) how many of each row to read, as in ``Encoder``. ``tokens`` (B, T) are
the ids said, the end included, and 0 behind it; ``lengths`` (B,) how many they are; ``weights`` (B, T, S) where each
step looked. Vocabularies are not in it.
"""

import io
import warnings
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.data.files import PathLike, atomic_write
from regard.nn import AdditiveScore, BilinearScore, DotProductScore, GaussianScore
from regard.seq2seq.decoder import Score
from regard.seq2seq.model import ProjectedKeys, Seq2Seq
from regard.seq2seq.speaking import Ends
from regard.seq2seq.vocabulary import BOS, EOS


class ExportError(ValueError):
    """A model that cannot be exported, or a place where it cannot go."""


def export_torchscript(model: Seq2Seq, path: PathLike, *, ends: Ends | None = None, force: bool = False) -> None:
    """Write the model as a TorchScript program that translates greedily.

    Parameters
    ----------
    model : in any mode, on any device; the program is on the same, and says what ``greedy`` says.
    path : the file; one that exists is refused unless ``force``. If writing fails, what was there stays.
    ends : the tokens that begin and end a sentence, and how long one may become.

    Raises ExportError.
    """
    program = Greedy(model, ends or Ends(BOS, EOS)).eval()
    written = io.BytesIO()
    with warnings.catch_warnings():
        # PyTorch advises torch.export instead, which has no loop of unknown length that runs without Python.
        warnings.filterwarnings("ignore", r"`torch\.jit\.", DeprecationWarning)
        torch.jit.save(torch.jit.script(program), written)  # type: ignore[no-untyped-call]
    with atomic_write(path, force=force, error=ExportError) as file:
        file.write(written.getbuffer())


class Scored(nn.Module):
    """The scores of a model in one form: kept = keys·Kᵀ, asked = query·Qᵀ, and one of three ways to compare them.

    tanh: v·tanh(asked + kept); product: asked·kept; distance: −½‖asked − kept‖².
    """

    __constants__ = ("way",)
    K: Tensor  # (a, key_size)
    Q: Tensor  # (a, query_size)
    v: Tensor  # (a,)

    def __init__(self, score: Score, query_size: int, key_size: int) -> None:
        super().__init__()
        keys = score.W_k.weight if isinstance(score, ProjectedKeys) else torch.eye(key_size)
        score = score.score if isinstance(score, ProjectedKeys) else score
        queries, self.way, v = torch.eye(query_size), "product", torch.zeros(0)
        if isinstance(score, AdditiveScore):
            keys, queries, self.way, v = score.W_k.weight, score.W_q.weight, "tanh", score.w_v.weight[0]
        elif isinstance(score, BilinearScore):
            keys = score.W
        elif isinstance(score, DotProductScore):
            queries = queries / sqrt(query_size)
        elif isinstance(score, GaussianScore) and score.w.ndim < 2:
            keys, queries, self.way = _scaled(keys, score.w), _scaled(queries, score.w), "distance"
        else:
            raise ExportError(f"score must be one of those that Architecture names, got {type(score).__name__}")
        for name, part in (("K", keys), ("Q", queries), ("v", v)):
            self.register_buffer(name, part.detach().clone())

    def forward(self, query: Tensor, kept: Tensor) -> Tensor:
        """Scores (B, S) between a query (B, d) each and kept keys (B, S, a)."""
        asked = F.linear(query, self.Q).unsqueeze(1)
        if self.way == "tanh":
            return torch.tanh(asked + kept).matmul(self.v)
        if self.way == "product":
            return (asked * kept).sum(-1)
        return -0.5 * (asked - kept).square().sum(-1)


def _scaled(rows: Tensor, w: Tensor) -> Tensor:
    return rows.to(w) * (w[:, None] if w.ndim else w)


class Greedy(nn.Module):
    """Encoder, decoder and greedy search as one program, in the part of Python that TorchScript reads."""

    # Constants: branches not taken are left out of the program.
    __constants__ = ("covers", "hard", "looks", "lstm", "textbook")
    W_o: Tensor  # (target_size, embed_size)
    b_o: Tensor  # (target_size,)
    w_c: Tensor  # (a,)

    def __init__(self, model: Seq2Seq, ends: Ends) -> None:
        super().__init__()
        a, encoder, decoder = model.architecture, model.encoder, model.decoder
        self.begin, self.end, self.times, self.more = ends.begin, ends.end, float(ends.times), ends.more
        self.directions, self.lstm, self.textbook = encoder.directions, a.cell == "lstm", a.order == "textbook"
        self.hard, self.looks, self.covers = a.attention == "hard", a.attention != "none", a.coverage
        self.read_embedding, self.read = encoder.embedding, encoder.recurrent
        self.bridge = nn.Sequential(encoder.bridge, nn.Tanh()) if encoder.bridge is not None else nn.Identity()
        self.embedding, self.scale, self.recurrent = decoder.embedding, decoder.scale, decoder.recurrent
        self.join = decoder.join
        like = decoder.join.weight
        out = decoder.embedding.weight if decoder.out is None else decoder.out.weight
        bias = decoder.b_o if decoder.out is None else decoder.out.bias
        score = DotProductScore() if decoder.score is None else decoder.score
        self.score = Scored(score, a.hidden_size, encoder.memory_size if self.looks else a.hidden_size).to(like)
        covering = decoder.w_c if decoder.w_c is not None else like.new_zeros(1)
        for name, part in (("W_o", out), ("b_o", bias), ("w_c", covering)):
            assert part is not None
            self.register_buffer(name, part.detach().clone())

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """States (B, S, m), what to start from (layers, B, h), and the top layer's last states (B, m)."""
        packed = pack_padded_sequence(self.read_embedding(source), lengths, batch_first=True, enforce_sorted=False)
        if self.lstm:
            states, (last, _) = self.read(packed)
        else:
            states, last = self.read(packed)
        padded, _ = pad_packed_sequence(states, batch_first=True, total_length=source.shape[1])
        both = last.unflatten(0, [-1, self.directions]).transpose(1, 2).flatten(2)
        return padded, self.bridge(both), both[-1]

    def look(self, query: Tensor, kept: Tensor, values: Tensor, mask: Tensor, covered: Tensor) -> tuple[Tensor, Tensor]:
        """Context (B, m) and weights (B, S)."""
        if self.covers:
            kept = kept + covered.unsqueeze(-1) * self.w_c
        scores = self.score(query, kept) + mask
        weights = scores.softmax(-1)
        if self.hard:
            weights = torch.zeros_like(weights).scatter(-1, scores.argmax(-1, keepdim=True), 1.0)
        return torch.bmm(weights.unsqueeze(1), values).squeeze(1), weights

    def forward(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        lengths = lengths.cpu()
        values, hidden, context = self.encode(source, lengths)
        cell = torch.zeros_like(hidden)
        place = torch.arange(source.shape[1], device=source.device)
        lengths = lengths.to(source.device)
        mask = torch.zeros_like(values[:, :, 0]).masked_fill(place >= lengths[:, None], -float("inf"))
        kept, weights = mask, (place == lengths[:, None] - 1).to(values.dtype)
        if self.looks:
            kept, context = F.linear(values, self.score.K), torch.zeros_like(context)
        covered = torch.zeros_like(mask)
        limits = (self.times * lengths).to(torch.int64) + self.more
        token = torch.full_like(lengths, self.begin)
        ended = limits <= 0
        count = torch.zeros_like(lengths)
        tokens: list[Tensor] = []
        looked: list[Tensor] = []
        while not bool(ended.all()):
            embedded = self.embedding(token) * self.scale
            if self.looks and self.textbook:
                context, weights = self.look(hidden[-1], kept, values, mask, covered)
            given = torch.cat([embedded, context], -1).unsqueeze(1)
            if self.lstm:
                top, (hidden, cell) = self.recurrent(given, (hidden, cell))
            else:
                top, hidden = self.recurrent(given, hidden)
            if self.looks and not self.textbook:
                context, weights = self.look(hidden[-1], kept, values, mask, covered)
            covered = covered + weights
            output = torch.tanh(self.join(torch.cat([top[:, 0], context, embedded], -1)))
            token = F.linear(output, self.W_o, self.b_o).argmax(-1)
            tokens.append(token.masked_fill(ended, 0))
            looked.append(weights.masked_fill(ended.unsqueeze(1), 0.0))
            count = count + (~ended).to(count.dtype)
            ended = ended | (token == self.end) | (count >= limits)
        return torch.stack(tokens, 1), count, torch.stack(looked, 1)
