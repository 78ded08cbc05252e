"""Translation beside a textbook decoder of equal sizes: speed and loss in one run, what attention costs, what it buys.

    python benchmarks/seq2seq.py                         dates, by characters, on the CPU: three minutes
    python benchmarks/seq2seq.py --task numbers          number words
    python benchmarks/seq2seq.py --data pairs.tsv --device cuda
    python benchmarks/seq2seq.py --lengths               quality with and without attention by source length, and a plot
    python benchmarks/seq2seq.py --save                  also write results/seq2seq.* (with --lengths seq2seq_lengths.*)

Three models are trained side by side on the same sentences with the same optimiser and loss, epoch by epoch in turn, so
that a busy machine slows all alike: ours, the textbook's (``seq2seq_textbook.py``), and ours without attention.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from machine import RESULTS, describe, facts, save, table
from regard.data import Pairs, dates, number_words, read_pairs, reversal
from regard.seq2seq.decoding import Ends, greedy
from regard.seq2seq.model import Architecture, Seq2Seq
from regard.seq2seq.token_batches import Sentences, TokenBatch, bucketed, collate, in_order
from regard.seq2seq.vocabulary import BOS, EOS, PAD, Vocabulary
from seq2seq_textbook import Textbook

# How to make pairs, and the units of source and target.
TASKS: dict[str, tuple[Callable[[int], Pairs], str, str]] = {
    "numbers": (number_words, "words", "characters"),
    "dates": (dates, "characters", "characters"),
    "reversal": (reversal, "characters", "characters"),
}
HELD_OUT, LEARNING_RATE, CLIP = 0.1, 1e-3, 1.0
# Sentences the textbook translates one by one: enough for a steady figure.
ONE_BY_ONE = 200


@dataclass(frozen=True)
class Data:
    """Sentences as token numbers: those to learn from and those held out, source and target."""

    train: tuple[Sentences, Sentences]
    held: tuple[Sentences, Sentences]
    sizes: tuple[int, int]
    said: tuple[list[int], ...]  # the held-out targets
    texts: Pairs  # the held-out pairs as they are
    target: Vocabulary

    @classmethod
    def of(cls, pairs: Pairs, source_unit: str, target_unit: str, lower: bool, min_count: int) -> Data:
        learn, held = pairs.split(HELD_OUT)
        source = Vocabulary.learn(learn.source, source_unit, lower=lower, min_count=min_count)
        target = Vocabulary.learn(learn.target, target_unit, lower=lower, min_count=min_count)
        sides = [
            (
                Sentences([source.encode(text) for text in part.source]),
                Sentences([target.encode(text) for text in part.target]),
            )
            for part in (learn, held)
        ]
        said = tuple(target.encode(text) for text in held.target)
        return cls(sides[0], sides[1], (len(source), len(target)), said, held, target)

    @property
    def longest(self) -> tuple[int, int]:
        """Of all sentences, source and target: what the textbook pads to."""
        both = [int(max(a.lengths.max(), b.lengths.max())) for a, b in zip(self.train, self.held, strict=True)]
        return both[0], both[1]

    def padded(self, texts: tuple[Sentences, Sentences], rows: Sequence[int]) -> TokenBatch:
        """The batch of these rows, padded to the longest of all."""
        batch = collate(*texts, rows)
        source, target = self.longest
        wide = F.pad(batch.source, (0, source - batch.source.shape[1]), value=PAD)
        tokens, wanted = (F.pad(side, (0, target + 1 - side.shape[1]), value=PAD) for side in batch[2:4])
        return batch._replace(source=wide, tokens=tokens, wanted=wanted)


@dataclass
class Pupil:
    """A model in training, and what it has cost so far."""

    model: nn.Module
    logits: Callable[[TokenBatch], Tensor]
    batches: Callable[[int], list[TokenBatch]]
    held: Callable[[], list[TokenBatch]]
    seconds: list[float] = field(default_factory=list)  # by epoch
    losses: list[float] = field(default_factory=list)  # held out, by epoch

    def __post_init__(self) -> None:
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=LEARNING_RATE)

    def learn(self, batch: TokenBatch) -> None:
        self.optimiser.zero_grad()
        self._loss(batch).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimiser.step()

    def epoch(self, number: int, device: torch.device) -> None:
        self.model.train()
        rest(device)
        started = perf_counter()
        for batch in self.batches(number):
            self.learn(batch.to(device))
        rest(device)
        self.seconds.append(perf_counter() - started)
        self.model.eval()
        with torch.no_grad():
            batch_losses = [(self._loss(batch.to(device)), batch.tokens_wanted) for batch in self.held()]
        self.losses.append(
            sum(float(loss) * count for loss, count in batch_losses) / sum(count for _, count in batch_losses)
        )

    def _loss(self, batch: TokenBatch) -> Tensor:
        return F.cross_entropy(self.logits(batch).flatten(0, 1), batch.wanted.flatten(), ignore_index=PAD)


def rest(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def ours(data: Data, size: int, batch_size: int, device: torch.device, attention: str = "soft") -> Pupil:
    """This package's model, its sentences bucketed by length."""
    torch.manual_seed(0)
    # The textbook's output matrix is its own, so ours is too.
    shape = Architecture(embed_size=size, hidden_size=size, attention=attention, tied=False)
    model = Seq2Seq(shape, *data.sizes).to(device)

    def batches(epoch: int) -> list[TokenBatch]:
        rows = bucketed(*data.train, batch_size, np.random.default_rng((0, epoch)))
        return [collate(*data.train, some) for some in rows]

    def held() -> list[TokenBatch]:
        return [collate(*data.held, rows) for rows in in_order(*data.held, batch_size)]

    return Pupil(model, lambda batch: model(batch.source, batch.lengths, batch.tokens)[0], batches, held)


def textbook(data: Data, size: int, batch_size: int, device: torch.device) -> Pupil:
    """The textbook's model, its sentences as they come."""
    torch.manual_seed(0)
    model = Textbook(*data.sizes, size, size).to(device)

    def dealt(texts: tuple[Sentences, Sentences], rows: Sequence[int]) -> list[TokenBatch]:
        return [data.padded(texts, rows[at : at + batch_size]) for at in range(0, len(rows), batch_size)]

    def batches(epoch: int) -> list[TokenBatch]:
        return dealt(data.train, np.random.default_rng((0, epoch)).permutation(len(data.train[0])).tolist())

    def logits(batch: TokenBatch) -> Tensor:
        return model(batch.source, batch.lengths.to(device), batch.tokens)

    return Pupil(model, logits, batches, lambda: dealt(data.held, range(len(data.held[0]))))


def say(model: Seq2Seq, data: Data, rows: Sequence[int], batch_size: int, device: torch.device) -> list[list[int]]:
    """What our model says, in batches of like length."""
    said: list[list[int]] = [[] for _ in rows]
    order = sorted(range(len(rows)), key=lambda number: -int(data.held[0].lengths[rows[number]]))
    for at in range(0, len(order), batch_size):
        some = order[at : at + batch_size]
        batch = collate(*data.held, [rows[number] for number in some])
        with torch.no_grad():
            encoded = model.encoder(batch.source.to(device), batch.lengths)
        # As long as the textbook's may become.
        ends = Ends(BOS, EOS, times=0.0, more=data.longest[1] + 1)
        for number, hypothesis in zip(some, greedy(model.decoder, encoded, ends), strict=True):
            said[number] = list(hypothesis.tokens)
    return said


def say_as_textbook(
    model: Textbook, data: Data, rows: Sequence[int], batch_size: int, device: torch.device
) -> list[list[int]]:
    said = []
    for at in range(0, len(rows), batch_size):
        batch = data.padded(data.held, list(rows[at : at + batch_size]))
        source, lengths = batch.source.to(device), batch.lengths.to(device)
        said += model.predict(source, lengths, data.longest[1] + 1, BOS, EOS)
    return said


def spoken(speak: Callable[..., list[list[int]]], data: Data, rows: Sequence[int], *args: Any) -> dict[str, float]:
    """Sentences per second, and the share that is right to the last token; the better of two runs."""
    times = []
    for _ in range(2):
        started = perf_counter()
        said = speak(rows, *args)
        times.append(perf_counter() - started)
    right = sum(a == data.said[row] for a, row in zip(said, rows, strict=True))
    return {"sentences_per_second": len(rows) / min(times), "exact": right / len(rows)}


def race(data: Data, args: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Train the three in turn, then let them speak."""
    settings = (data, args.size, args.batch_size, device)
    pupils = {"ours": ours(*settings), "textbook": textbook(*settings), "no attention": ours(*settings, "none")}
    for pupil in pupils.values():
        # First calls choose programs and take memory; no weight moves at a rate of zero.
        pupil.optimiser.param_groups[0]["lr"] = 0.0
        for batch in pupil.batches(0)[:3]:
            pupil.learn(batch.to(device))
        pupil.optimiser = torch.optim.Adam(pupil.model.parameters(), lr=LEARNING_RATE)
    for epoch in range(args.epochs):
        for pupil in pupils.values():
            pupil.epoch(epoch, device)
    sentences = len(data.train[0])
    tokens = int(data.train[1].lengths.sum()) + sentences
    training = {
        name: {
            "sentences_per_second": sentences / float(np.median(pupil.seconds)),
            "target_tokens_per_second": tokens / float(np.median(pupil.seconds)),
            "held_out_loss": pupil.losses[-1],
        }
        for name, pupil in pupils.items()
    }
    every = list(range(len(data.held[0])))
    some = every[:ONE_BY_ONE]
    batched = (args.batch_size, device)
    speak = {name: pupil.model for name, pupil in pupils.items()}
    inference = {
        "ours": spoken(lambda *a: say(speak["ours"], data, *a), data, every, *batched),
        "textbook, one by one": spoken(lambda *a: say_as_textbook(speak["textbook"], data, *a), data, some, 1, device),
        "textbook, batched": spoken(lambda *a: say_as_textbook(speak["textbook"], data, *a), data, every, *batched),
        "no attention": spoken(lambda *a: say(speak["no attention"], data, *a), data, every, *batched),
    }
    return {"sentences": sentences, "target_tokens": tokens, "training": training, "inference": inference}


def floors(found: dict[str, Any], device: torch.device) -> list[list[str]]:
    """What is asked of the figures, and whether they meet it."""
    speed = {name: row["sentences_per_second"] for name, row in found["training"].items()}
    said = {name: row["sentences_per_second"] for name, row in found["inference"].items()}
    least = 3.0 if device.type == "cuda" else 1.5
    asked = [
        ("training, times the textbook", speed["ours"] / speed["textbook"], least, True),
        ("inference, times the textbook one by one", said["ours"] / said["textbook, one by one"], 3.0, True),
        ("inference, times the textbook batched", said["ours"] / said["textbook, batched"], None, True),
        ("what attention costs in training", speed["no attention"] / speed["ours"], 2.0, False),
        ("what attention costs in inference", said["no attention"] / said["ours"], None, False),
    ]
    rows = []
    for what, value, limit, above in asked:
        met = limit is None or (value >= limit if above else value < limit)
        bound = "" if limit is None else f"{'≥' if above else '<'} {limit}×"
        rows.append([what, f"{value:.2f}×", bound, "" if limit is None else "yes" if met else "NO"])
    return rows


def result_page(found: dict[str, Any], device: torch.device) -> str:
    training = [
        [
            name,
            f"{row['sentences_per_second']:,.0f}",
            f"{row['target_tokens_per_second']:,.0f}",
            f"{row['held_out_loss']:.4f}",
        ]
        for name, row in found["training"].items()
    ]
    inference = [
        [name, f"{row['sentences_per_second']:,.0f}", f"{row['exact']:.1%}"] for name, row in found["inference"].items()
    ]
    return "\n\n".join(
        [
            table(["training", "sentences/s", "target tokens/s", "held-out loss"], training),
            table(["greedy", "sentences/s", "exact"], inference),
            table(["what", "measured", "floor", "met"], floors(found, device)),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--task", choices=tuple(TASKS), help="pairs to make (dates, with --lengths reversal)")
    parser.add_argument("--data", help="a file of lines source<TAB>target instead, read by words in small letters")
    parser.add_argument("--sentences", type=int, default=3000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=256, help="of embeddings and states")
    parser.add_argument("--threads", type=int, help="of the CPU; all if not given")
    parser.add_argument("--lengths", action="store_true", help="quality by source length, with and without attention")
    parser.add_argument("--plot", help="where --lengths draws; results/seq2seq_lengths.png with --save, else here")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    args.plot = args.plot or str((RESULTS if args.save else Path()) / "seq2seq_lengths.png")
    if args.threads:
        torch.set_num_threads(args.threads)
    device = torch.device(args.device)
    task = args.task or ("reversal" if args.lengths else "dates")
    if args.data:
        pairs = read_pairs(args.data)
        data = Data.of(pairs.take(range(min(args.sentences, len(pairs)))), "words", "words", True, 2)
    else:
        make, source_unit, target_unit = TASKS[task]
        data = Data.of(make(args.sentences), source_unit, target_unit, False, 1)
    record: dict[str, Any] = {"machine": facts(), **{k: v for k, v in vars(args).items() if k not in ("plot", "data")}}
    record |= {"task": "pairs of a file" if args.data else task, "threads": torch.get_num_threads()}
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"{record['threads']} threads"
    longest = data.longest
    about = (
        f"{record['task']}: {len(data.train[0]):,} sentences to learn from, {len(data.held[0]):,} held out, "
        f"{data.sizes[0]:,} and {data.sizes[1]:,} ids, at most {longest[0]} and {longest[1]} tokens; "
        f"size {args.size}, batches of {args.batch_size}, {args.epochs} epochs, {where}"
    )
    if args.lengths:
        from seq2seq_lengths import lengths

        record["lengths"], shown = lengths(data, args, device)
    else:
        record |= race(data, args, device)
        shown = result_page(record, device)
    text = f"# Sequence to sequence\n\n{describe(record['machine'])}\n\n{about}\n\n{shown}"
    print(text)
    if args.save:
        save("seq2seq_lengths" if args.lengths else f"seq2seq{'_cuda' * (args.device == 'cuda')}", record, text)


if __name__ == "__main__":
    main()
