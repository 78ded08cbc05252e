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
from regard.cli.translate.translate_arguments import Data, Device, Target, check_device, read_data

if TYPE_CHECKING:
    from regard.data import Pairs
    from regard.seq2seq.trainer import TrainingOutcome, TrainingProgress

# Without --valid, this fraction of the pairs is used for validation.
VALIDATION_FRACTION = 0.05


@dataclass(frozen=True)
class Train:
    """Train a translator on pairs of texts.

    Writes FOLDER/model.regard (the translator of the best epoch), FOLDER/checkpoint.regard and FOLDER/metrics.jsonl.
    Ctrl-C saves a checkpoint and stops; the same command with --resume continues, and ends with the same weights as
    without an interruption.
    """

    data: Data
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Folder for model, checkpoint and metrics.")]
    target: Target = None
    valid: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Validation pairs, for early stopping. Default: a twentieth of DATA."),
    ] = None
    valid_target: Annotated[str | None, typer.Option(metavar="FILE", help="The target texts of --valid.")] = None
    unit: Annotated[str, typer.Option(help="What a token is: words, characters or sentencepiece.")] = "words"
    target_unit: Annotated[str | None, typer.Option(help="What a token of the target is, if different.")] = None
    max_size: Annotated[int | None, typer.Option(help="Maximum size of a vocabulary; required by sentencepiece.")] = (
        None
    )
    min_count: Annotated[int, typer.Option(help="Leave out tokens with a lower count.")] = 1
    lower: Annotated[bool, typer.Option("--lower", help="Lowercase all texts.")] = False
    embed_size: Annotated[int, typer.Option(help="Size of an embedding.")] = 256
    hidden_size: Annotated[int, typer.Option(help="Size of a state.")] = 256
    layers: Annotated[int, typer.Option(help="Layers of the recurrent networks.")] = 1
    cell: Annotated[str, typer.Option(help="gru or lstm.")] = "gru"
    score: Annotated[str, typer.Option(help="additive, dot, bilinear or gaussian.")] = "additive"
    order: Annotated[str, typer.Option(help="textbook: attend, then step; luong: step, then attend.")] = "textbook"
    attention: Annotated[str, typer.Option(help="soft, hard (one token at a time) or none.")] = "soft"
    coverage: Annotated[bool, typer.Option("--coverage", help="Let the score depend on past attention.")] = False
    dropout: Annotated[float, typer.Option(help="Dropout probability of embeddings and outputs.")] = 0.2
    batch_size: Annotated[int, typer.Option(help="Pairs in a batch.")] = 64
    epochs: Annotated[int, typer.Option(help="Maximum number of epochs.")] = 20
    seconds: Annotated[float | None, typer.Option(help="Time limit in seconds.")] = None
    learning_rate: Annotated[float, typer.Option(help="Largest learning rate of Adam.")] = 1e-3
    schedule: Annotated[str, typer.Option(help="cosine, or plateau: halved when the loss stops improving.")] = "cosine"
    warmup: Annotated[int, typer.Option(help="Steps over which the learning rate rises.")] = 100
    clip: Annotated[float, typer.Option(help="Maximum norm of the gradient.")] = 1.0
    patience: Annotated[int, typer.Option(help="Stop after this many epochs without improvement.")] = 5
    label_smoothing: Annotated[float, typer.Option(help="Probability spread over all tokens.")] = 0.1
    scheduled_sampling: Annotated[float, typer.Option(help="Final fraction of input tokens that are predictions.")] = (
        0.0
    )
    max_tokens: Annotated[int, typer.Option(help="Leave out pairs with more tokens on either side.")] = 200
    precision: Annotated[str, typer.Option(help="float32, or bfloat16 for matrix products.")] = "float32"
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 0
    device: Device = "cpu"
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint in the folder.")] = False
    force: Annotated[bool, typer.Option("--force", help="Start a new training in a folder that is not empty.")] = False

    def __post_init__(self) -> None:
        if self.resume and self.force:
            raise typer.BadParameter(
                "--resume and --force exclude each other: one continues, the other starts a new training",
                param_hint="--resume",
            )
        if self.valid_target is not None and self.valid is None:
            raise typer.BadParameter("--valid-target needs --valid", param_hint="--valid-target")
        if (self.target is None) != (self.valid_target is None) and self.valid is not None:
            raise typer.BadParameter("give both --target and --valid-target, or neither", param_hint="--valid")

    def run(self) -> None:
        from regard.seq2seq.model import Architecture
        from regard.seq2seq.pair_training import MODEL, Lesson, learn
        from regard.seq2seq.trainer import Training

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
            say(f"stopped after {learned.outcome.steps:,} steps; continue with the same command and --resume")
            raise KeyboardInterrupt
        self._report(learned.outcome)
        say(f"saved {folder / MODEL} ({file_size(str(folder / MODEL))})")

    def _folder(self) -> Path:
        """The folder to write to: a new one, or that of the training to resume."""
        from regard.seq2seq.trainer import CHECKPOINT

        folder = Path(self.out)
        if self.resume:
            if not (folder / CHECKPOINT).is_file():
                raise ValueError(f"{folder}: contains no {CHECKPOINT} to resume from")
            return folder
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder}: is not a folder")
        if folder.is_dir() and any(folder.iterdir()) and not self.force:
            raise ValueError(
                f"{folder}: is not empty; continue its training with --resume, or start a new one with --force"
            )
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _pairs(self) -> tuple[Pairs, Pairs]:
        whole = read_data(self.data, self.target)
        if self.valid is not None:
            return whole, read_data(self.valid, self.valid_target)
        train, valid = whole.split(VALIDATION_FRACTION)
        if not len(train) or not len(valid):
            raise ValueError(f"{self.data}: {len(whole)} pairs are too few to split off validation pairs; give --valid")
        return train, valid

    def _report(self, outcome: TrainingOutcome) -> None:
        reason = {
            "epochs": "all epochs are done",
            "patience": f"no improvement in {self.patience} epochs",
            "seconds": f"the limit of {self.seconds:.0f} seconds is reached" if self.seconds else "",
        }
        say(
            f"{len(outcome.losses)} epochs, {outcome.steps:,} steps, {outcome.seconds:.0f} s: {reason[outcome.ended]}. "
            f"Best epoch: {outcome.best_epoch + 1}, with a validation loss of {outcome.best:.3g} nats per token"
        )


def _show(update: Update, losses: list[float], at: TrainingProgress) -> None:
    """Update the bar and the text beside it: epoch, loss as a curve and a number, speed and the time left."""
    from regard.plot.live import sparkline

    losses.append(at.loss)
    validation = "" if math.isnan(at.validation) else f", validation {at.validation:.3g}"
    text = (
        f"epoch {at.epoch}/{at.epochs}  {sparkline(losses)}  loss {at.loss:.3g}{validation}, "
        f"{at.tokens_per_second:,.0f} tokens/s, {time_left(at.seconds_left)} left"
    )
    update(total=at.steps, completed=at.step, status=text)
