"""``regard translate train``: pairs of texts in, a folder with a translator out."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.command_io import file_size
from regard.cli.console import say, spinner
from regard.cli.progress_bars import Update, progress_bar, time_left
from regard.cli.translate.inputs import Data, Device, Target, check_device, pairs

if TYPE_CHECKING:
    from regard.data import Pairs
    from regard.seq2seq.learning import Learned
    from regard.seq2seq.training import Progress

# Without --valid, this share of the pairs is held out.
HELD_OUT = 0.05


@dataclass(frozen=True)
class Train:
    """Train a translator on pairs of texts.

    Writes FOLDER/model.regard (the translator of the best epoch), FOLDER/checkpoint.regard and FOLDER/metrics.jsonl.
    Ctrl-C saves a checkpoint and stops; the same command with --resume goes on, and ends with the same weights as if
    it had never stopped.
    """

    data: Data
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where model, checkpoint and metrics go.")]
    target: Target = None
    valid: Annotated[
        str | None, typer.Option(metavar="FILE", help="Pairs that tell when to stop. Default: a twentieth of DATA.")
    ] = None
    valid_target: Annotated[str | None, typer.Option(metavar="FILE", help="The target texts of --valid.")] = None
    unit: Annotated[str, typer.Option(help="What a token is: words, characters or sentencepiece.")] = "words"
    target_unit: Annotated[str | None, typer.Option(help="What a token of the target is, if something else.")] = None
    max_size: Annotated[int | None, typer.Option(help="Tokens in a vocabulary, at most; sentencepiece needs it.")] = (
        None
    )
    min_count: Annotated[int, typer.Option(help="Leave out tokens seen less often.")] = 1
    lower: Annotated[bool, typer.Option("--lower", help="Put all texts in small letters.")] = False
    embed_size: Annotated[int, typer.Option(help="Of an embedding.")] = 256
    hidden_size: Annotated[int, typer.Option(help="Of a state.")] = 256
    layers: Annotated[int, typer.Option(help="Of the recurrent networks.")] = 1
    cell: Annotated[str, typer.Option(help="gru or lstm.")] = "gru"
    score: Annotated[str, typer.Option(help="additive, dot, bilinear or gaussian.")] = "additive"
    order: Annotated[str, typer.Option(help="textbook: look, then step; luong: step, then look.")] = "textbook"
    attention: Annotated[str, typer.Option(help="soft, hard (one token at a time) or none.")] = "soft"
    coverage: Annotated[bool, typer.Option("--coverage", help="Tell the score what was looked at already.")] = False
    dropout: Annotated[float, typer.Option(help="Share of embeddings and outputs set to zero in training.")] = 0.2
    batch_size: Annotated[int, typer.Option(help="Pairs in a batch.")] = 64
    epochs: Annotated[int, typer.Option(help="At most.")] = 20
    seconds: Annotated[float | None, typer.Option(help="End after so long at the latest.")] = None
    learning_rate: Annotated[float, typer.Option(help="Of Adam, at its highest.")] = 1e-3
    schedule: Annotated[str, typer.Option(help="cosine, or plateau: halved where nothing gets better.")] = "cosine"
    warmup: Annotated[int, typer.Option(help="Steps over which the rate rises.")] = 100
    clip: Annotated[float, typer.Option(help="The longest that a gradient may be.")] = 1.0
    patience: Annotated[int, typer.Option(help="Epochs without a better one after which it ends.")] = 5
    label_smoothing: Annotated[float, typer.Option(help="Share of a token's probability that all share.")] = 0.1
    scheduled_sampling: Annotated[float, typer.Option(help="Share of tokens from its own mouth in the end.")] = 0.0
    max_tokens: Annotated[int, typer.Option(help="Leave out pairs with a longer side.")] = 200
    precision: Annotated[str, typer.Option(help="float32, or bfloat16 for products.")] = "float32"
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0
    device: Device = "cpu"
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in the folder.")] = False
    force: Annotated[bool, typer.Option("--force", help="Start anew in a folder that is not empty.")] = False

    def __post_init__(self) -> None:
        if self.resume and self.force:
            raise typer.BadParameter("--resume goes on, --force starts anew", param_hint="--resume")
        if self.valid_target is not None and self.valid is None:
            raise typer.BadParameter("--valid-target needs --valid", param_hint="--valid-target")
        if (self.target is None) != (self.valid_target is None) and self.valid is not None:
            raise typer.BadParameter("give both --target and --valid-target, or neither", param_hint="--valid")

    def run(self) -> None:
        from regard.seq2seq.learning import MODEL, Lesson, learn
        from regard.seq2seq.model import Architecture
        from regard.seq2seq.training import Training

        # Every option of the three has the name of its field.
        made: Any = [
            kind(**{each.name: getattr(self, each.name) for each in fields(kind) if hasattr(self, each.name)})
            for kind in (Architecture, Lesson, Training)
        ]
        check_device(self.device)
        folder = self._folder()
        with spinner(f"Reading {self.data}"):
            train, valid = self._pairs()
        with progress_bar(f"Learning from {len(train):,} pairs") as update:
            learned = learn(
                train,
                valid,
                architecture=made[0],
                lesson=made[1],
                training=made[2],
                device=self.device,
                folder=folder,
                resume=self.resume,
                watch=None if update is None else partial(_show, update, []),
            )
        if learned.outcome.ended == "interrupted":
            say(f"stopped after {learned.outcome.steps:,} steps; go on with the same command and --resume")
            raise KeyboardInterrupt
        self._tell(learned)
        say(f"saved {folder / MODEL} ({file_size(str(folder / MODEL))})")

    def _folder(self) -> Path:
        """The folder to write to: a new one, or that of the training that is resumed."""
        from regard.seq2seq.trainer import CHECKPOINT

        folder = Path(self.out)
        if self.resume:
            if not (folder / CHECKPOINT).is_file():
                raise ValueError(f"{folder}: holds no {CHECKPOINT} to resume from")
            return folder
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder}: is not a folder")
        if folder.is_dir() and any(folder.iterdir()) and not self.force:
            raise ValueError(f"{folder}: is not empty; go on with --resume, or start anew with --force")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _pairs(self) -> tuple[Pairs, Pairs]:
        whole = pairs(self.data, self.target)
        if self.valid is not None:
            return whole, pairs(self.valid, self.valid_target)
        train, valid = whole.split(HELD_OUT)
        if not len(train) or not len(valid):
            raise ValueError(f"{self.data}: {len(whole)} pairs are too few to hold some out; give --valid")
        return train, valid

    def _tell(self, learned: Learned) -> None:
        outcome = learned.outcome
        why = {
            "epochs": "all epochs are done",
            "patience": f"{self.patience} epochs brought nothing better",
            "seconds": f"{self.seconds:.0f} seconds are over" if self.seconds else "",
        }
        say(
            f"{len(outcome.losses)} epochs, {outcome.steps:,} steps, {outcome.seconds:.0f} s: {why[outcome.ended]}. "
            f"Kept epoch {outcome.best_epoch + 1}: {outcome.best:.3g} nats a token on pairs held out"
        )


def _show(update: Update, losses: list[float], at: Progress) -> None:
    """Move the bar; beside it epoch, the loss as a curve and a number, speed and the time left."""
    from regard.plot.live import sparkline

    losses.append(at.loss)
    held_out = "" if math.isnan(at.validation) else f", held out {at.validation:.3g}"
    status = (
        f"epoch {at.epoch}/{at.epochs}  {sparkline(losses)}  loss {at.loss:.3g}{held_out}, "
        f"{at.tokens_per_second:,.0f} tokens/s, {time_left(at.seconds_left)} left"
    )
    update(total=at.steps, completed=at.step, status=status)
