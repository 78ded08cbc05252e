"""``regard translate train``: pairs of texts in, a folder with a translator out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.console import say, working
from regard.cli.inputs import size_in_words
from regard.cli.translate.inputs import Data, Device, Target, check_device, pairs
from regard.cli.translate.watching import watching

if TYPE_CHECKING:
    from regard.data import Pairs
    from regard.seq2seq.learning import Learned

# Without --valid, this share of the pairs is held out.
HELD_OUT = 0.05


@dataclass(frozen=True)
class Train:
    """Checked arguments of ``regard translate train``."""

    data: str
    target: str | None
    valid: str | None
    valid_target: str | None
    out: str
    architecture: dict[str, Any]
    lesson: dict[str, Any]
    training: dict[str, Any]
    device: str
    resume: bool
    force: bool

    def run(self) -> None:
        from regard.seq2seq.learning import MODEL, Lesson, learn
        from regard.seq2seq.model import Architecture
        from regard.seq2seq.training import Training

        made = (Architecture(**self.architecture), Lesson(**self.lesson), Training(**self.training))
        check_device(self.device)
        folder = self._folder()
        with working(f"Reading {self.data}"):
            train, valid = self._pairs()
        with watching(f"Learning from {len(train):,} pairs") as watch:
            learned = learn(
                train,
                valid,
                architecture=made[0],
                lesson=made[1],
                training=made[2],
                device=self.device,
                folder=folder,
                resume=self.resume,
                watch=watch,
            )
        if learned.outcome.ended == "interrupted":
            say(f"stopped after {learned.outcome.steps:,} steps; go on with the same command and --resume")
            raise KeyboardInterrupt
        self._tell(learned)
        say(f"saved {folder / MODEL} ({size_in_words(str(folder / MODEL))})")

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
            "patience": f"{self.training['patience']} epochs brought nothing better",
            "seconds": f"{self.training['seconds']:.0f} seconds are over" if self.training["seconds"] else "",
        }
        say(
            f"{len(outcome.losses)} epochs, {outcome.steps:,} steps, {outcome.seconds:.0f} s: {why[outcome.ended]}. "
            f"Kept epoch {outcome.best_epoch + 1}: {outcome.best:.3g} nats a token on pairs held out"
        )


def command(
    data: Data,
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where model, checkpoint and metrics go.")],
    target: Target = None,
    valid: Annotated[
        str | None, typer.Option(metavar="FILE", help="Pairs that tell when to stop. Default: a twentieth of DATA.")
    ] = None,
    valid_target: Annotated[str | None, typer.Option(metavar="FILE", help="The target texts of --valid.")] = None,
    unit: Annotated[str, typer.Option(help="What a token is: words, characters or sentencepiece.")] = "words",
    target_unit: Annotated[str | None, typer.Option(help="What a token of the target is, if something else.")] = None,
    max_size: Annotated[
        int | None, typer.Option(help="Tokens in a vocabulary, at most; sentencepiece needs it.")
    ] = None,
    min_count: Annotated[int, typer.Option(help="Leave out tokens seen less often.")] = 1,
    lower: Annotated[bool, typer.Option("--lower", help="Put all texts in small letters.")] = False,
    embed_size: Annotated[int, typer.Option(help="Of an embedding.")] = 256,
    hidden_size: Annotated[int, typer.Option(help="Of a state.")] = 256,
    layers: Annotated[int, typer.Option(help="Of the recurrent networks.")] = 1,
    cell: Annotated[str, typer.Option(help="gru or lstm.")] = "gru",
    score: Annotated[str, typer.Option(help="additive, dot, bilinear or gaussian.")] = "additive",
    order: Annotated[str, typer.Option(help="textbook: look, then step; luong: step, then look.")] = "textbook",
    attention: Annotated[str, typer.Option(help="soft, hard (one token at a time) or none.")] = "soft",
    coverage: Annotated[bool, typer.Option("--coverage", help="Tell the score what was looked at already.")] = False,
    dropout: Annotated[float, typer.Option(help="Share of embeddings and outputs set to zero in training.")] = 0.2,
    batch_size: Annotated[int, typer.Option(help="Pairs in a batch.")] = 64,
    epochs: Annotated[int, typer.Option(help="At most.")] = 20,
    seconds: Annotated[float | None, typer.Option(help="End after so long at the latest.")] = None,
    learning_rate: Annotated[float, typer.Option(help="Of Adam, at its highest.")] = 1e-3,
    schedule: Annotated[str, typer.Option(help="cosine, or plateau: halved where nothing gets better.")] = "cosine",
    warmup: Annotated[int, typer.Option(help="Steps over which the rate rises.")] = 100,
    clip: Annotated[float, typer.Option(help="The longest that a gradient may be.")] = 1.0,
    patience: Annotated[int, typer.Option(help="Epochs without a better one after which it ends.")] = 5,
    label_smoothing: Annotated[float, typer.Option(help="Share of a token's probability that all share.")] = 0.1,
    scheduled_sampling: Annotated[float, typer.Option(help="Share of tokens from its own mouth in the end.")] = 0.0,
    max_tokens: Annotated[int, typer.Option(help="Leave out pairs with a longer side.")] = 200,
    precision: Annotated[str, typer.Option(help="float32, or bfloat16 for products.")] = "float32",
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    device: Device = "cpu",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in the folder.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Start anew in a folder that is not empty.")] = False,
) -> Train:
    """Train a translator on pairs of texts.

    Writes FOLDER/model.regard (the translator of the best epoch), FOLDER/checkpoint.regard and FOLDER/metrics.jsonl.
    Ctrl-C saves a checkpoint and stops; the same command with --resume goes on, and ends with the same weights as if
    it had never stopped.
    """
    if resume and force:
        raise typer.BadParameter("--resume goes on, --force starts anew", param_hint="--resume")
    if valid_target is not None and valid is None:
        raise typer.BadParameter("--valid-target needs --valid", param_hint="--valid-target")
    if (target is None) != (valid_target is None) and valid is not None:
        raise typer.BadParameter("give both --target and --valid-target, or neither", param_hint="--valid")
    architecture = {
        "embed_size": embed_size, "hidden_size": hidden_size, "layers": layers, "cell": cell, "score": score,
        "order": order, "attention": attention, "coverage": coverage, "dropout": dropout,
    }  # fmt: skip
    lesson = {
        "unit": unit, "target_unit": target_unit, "max_size": max_size, "min_count": min_count, "lower": lower,
        "batch_size": batch_size, "label_smoothing": label_smoothing, "scheduled_sampling": scheduled_sampling,
        "max_tokens": max_tokens,
        "precision": precision,
    }  # fmt: skip
    training = {
        "epochs": epochs, "learning_rate": learning_rate, "schedule": schedule, "warmup": warmup, "clip": clip,
        "patience": patience, "seconds": seconds, "seed": seed,
    }  # fmt: skip
    return Train(data, target, valid, valid_target, out, architecture, lesson, training, device, resume, force)
