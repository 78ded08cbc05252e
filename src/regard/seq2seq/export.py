"""Exporting a model: a ``torch.export`` program in one file that translates greedily and runs without this package.

    program = torch.export.load(path).module()
    tokens, counts, weights = program(source, lengths)

``source`` (B, S) holds token ids and ``lengths`` (B,) the number of tokens in each row, as in ``Encoder``. ``tokens``
(B, T) are the predicted ids including the end token, 0 behind it, where T is the largest length that ``ends`` allows
for S tokens; ``counts`` (B,) is the number of predicted ids; ``weights`` (B, T, S) are the attention weights of each
step. The vocabularies are not part of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.files import PathLike, atomic_write
from regard.seq2seq.decoder import DecoderState
from regard.seq2seq.decoding import Ends
from regard.seq2seq.encoder import Encoded, Encoder
from regard.seq2seq.model import Seq2Seq
from regard.seq2seq.recurrence import gru_cell, lstm_cell
from regard.seq2seq.transformer import TransformerSourceEncoder
from regard.seq2seq.vocabulary import BOS, EOS, PAD


class Seq2SeqExportError(ValueError):
    """A file that an exported model cannot be written to."""


def export_torchscript(model: Seq2Seq, path: PathLike, *, ends: Ends | None = None, force: bool = False) -> None:
    """Write the model as a ``torch.export`` program (.pt2) that translates greedily.

    The function has kept the name of the format that it used to write, TorchScript, which torch has deprecated.

    Parameters
    ----------
    model : Seq2Seq
        In any mode, on any device; the program runs on the same device and predicts what ``greedy`` predicts.
    path : str or path
        The file to write.
    ends : Ends, default=None
        The begin and end tokens, and the largest length of a translation; None is that of ``Translator``.
    force : bool, default=False
        Replace an existing file. If writing fails, it is left unchanged.

    Raises
    ------
    Seq2SeqExportError
        A ValueError: the file cannot be written.

    Needs ``torch.while_loop``; tested with torch 2.13.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from regard.seq2seq import Architecture
    >>> model = Seq2Seq(Architecture(embed_size=4, hidden_size=6), 10, 12)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_torchscript(model, Path(folder) / "model.pt2")
    ...     program = torch.export.load(Path(folder) / "model.pt2").module()
    >>> tokens, counts, weights = program(torch.tensor([[4, 5, 6]]), torch.tensor([3]))
    >>> counts.shape
    torch.Size([1])
    """
    device = next(model.parameters()).device
    example = torch.full((2, 3), EOS, device=device), torch.tensor([3, 2], device=device)
    batch, tokens = torch.export.Dim("batch"), torch.export.Dim("tokens")
    training = model.training
    with atomic_write(path, force=force, error=Seq2SeqExportError) as file, torch.no_grad():
        try:
            program = GreedySearch(model, ends or Ends(BOS, EOS)).eval()
            exported = torch.export.export(program, example, dynamic_shapes=({0: batch, 1: tokens}, {0: batch}))
        finally:
            model.train(training)
        torch.export.save(exported, file)


class GreedySearch(nn.Module):
    """Encoder, decoder and greedy search in operations that ``torch.export`` can trace, loops included."""

    def __init__(self, model: Seq2Seq, ends: Ends) -> None:
        super().__init__()
        self.model, self.ends = model, ends

    def forward(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        decoder: Any = self.model.decoder
        ends = self.ends
        limits = (ends.times * lengths).long() + ends.more
        longest = torch.sym_int(ends.times * source.shape[1]) + ends.more  # type: ignore[no-untyped-call]
        encoded, first = self._encoded(source, lengths, longest)
        memory = decoder.remember(encoded)

        def unfinished(ended: Tensor, *_: Any) -> Tensor:
            return ~ended.all()

        def step(
            ended: Tensor,
            t: Tensor,
            token: Tensor,
            counts: Tensor,
            tokens: Tensor,
            weights: Tensor,
            state: Any,
        ) -> tuple[Any, ...]:
            output, attended, state = decoder.step(token, state, memory)
            token = ends.predictable(decoder.say(output)).argmax(-1)
            tokens = tokens.index_copy(1, t, token.masked_fill(ended, PAD).unsqueeze(1))
            weights = weights.index_copy(1, t, attended.masked_fill(ended.unsqueeze(1), 0.0).unsqueeze(1))
            counts = counts + ~ended
            ended = ended | (token == ends.end) | (counts >= limits)
            if isinstance(state, DecoderState):
                # A loop may not return one of its inputs, as the context is without attention.
                state = state._replace(context=state.context.clone())
            return ended, t + 1, token, counts, tokens, weights, state

        start = (
            limits <= 0,
            lengths.new_zeros(1),
            torch.full_like(lengths, ends.begin),
            torch.zeros_like(lengths),
            lengths.new_full((source.shape[0], longest), PAD),
            encoded.states.new_zeros(source.shape[0], longest, source.shape[1]),
            first,
        )
        _, _, _, counts, tokens, weights, _ = torch.while_loop(unfinished, step, start)  # type: ignore[no-untyped-call]
        return tokens, counts, weights

    def _encoded(self, source: Tensor, lengths: Tensor, longest: int) -> tuple[Any, Any]:
        """Encoded sentences, and the first state of the decoder, whose tensors keep their shapes."""
        encoder: Any = self.model.encoder
        decoder: Any = self.model.decoder
        if isinstance(encoder, TransformerSourceEncoder):
            tokens = encoder.run(source, lengths, lengths)
            return tokens, decoder.start(tokens, capacity=longest)
        encoded = encode(encoder, source, lengths)
        return encoded, decoder.start(encoded)._replace(coverage=torch.zeros_like(encoded.mask))


def encode(encoder: Encoder, source: Tensor, lengths: Tensor) -> Encoded:
    """What ``encoder(source, lengths)`` returns, with loops over the tokens instead of packed sequences."""
    inside = torch.arange(source.shape[1], device=source.device) < lengths[:, None]  # (B, S)
    inputs, states, last = encoder.embedding(source), list[Tensor](), list[Tensor]()
    for number, parameters in enumerate(encoder.recurrent.all_weights):
        direction = number % encoder.directions
        if number and not direction:
            inputs, states = torch.cat(states, -1), []
        layer, final = encode_layer(inputs, inside, parameters, isinstance(encoder.recurrent, nn.LSTM), direction == 1)
        states.append(layer)
        last.append(final)
    start, top = encoder.joined(torch.stack(last))
    return Encoded(torch.cat(states, -1), lengths, torch.where(inside, 0.0, -torch.inf), start, top)


def encode_layer(
    inputs: Tensor, inside: Tensor, parameters: Sequence[Tensor], lstm: bool, backward: bool
) -> tuple[Tensor, Tensor]:
    """States (B, S, h) and last states (B, h) of one layer in one direction; padding leaves the state unchanged."""
    W_i, W_h, b_i, b_h = parameters
    gates, steps = F.linear(inputs, W_i, b_i), inputs.shape[1]

    def unfinished(t: Tensor, *_: Tensor) -> Tensor:
        return (t < steps).all()

    def step(t: Tensor, hidden: Tensor, cell: Tensor, states: Tensor) -> tuple[Tensor, ...]:
        position = steps - 1 - t if backward else t
        given, own = gates.index_select(1, position)[:, 0], F.linear(hidden, W_h, b_h)
        after, cell_after = lstm_cell(given + own, cell) if lstm else (gru_cell(given, own, hidden), cell)
        here = inside.index_select(1, position)  # (B, 1)
        states = states.index_copy(1, position, (after * here).unsqueeze(1))
        return t + 1, torch.where(here, after, hidden), torch.where(here, cell_after, cell), states

    zeros = gates.new_zeros(inputs.shape[0], W_h.shape[1])
    count = torch.zeros(1, dtype=torch.int64, device=inputs.device)
    start = count, zeros, zeros.clone(), torch.zeros_like(gates[:, :, : W_h.shape[1]])
    _, hidden, _, states = torch.while_loop(unfinished, step, start)  # type: ignore[no-untyped-call]
    return states, hidden
