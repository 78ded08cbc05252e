"""``regard translate train``: pairs of texts in, a folder with a translator out."""

from __future__ import annotations

import json
import math
import signal
import threading
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import partial
from pathlib import Path
from time import monotonic
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
# Seconds between two log lines within an epoch, where there is no terminal.
SECONDS_PER_LINE = 30.0
# Columns of a terminal, and of them those of the bar and the spaces beside it.
COLUMNS = 80
BAR_COLUMNS = 12


class Log(StrEnum):
    """Form of the log lines."""

    text = "text"
    json = "json"


def _read_config(ctx: typer.Context, path: str | None) -> str | None:
    """Make the settings of a TOML file the defaults of the options."""
    if path is None:
        return None
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as reason:
        raise typer.BadParameter(f"{path}: cannot be read as TOML ({reason})", param_hint="--config") from None
    settings = {name.replace("-", "_"): value for name, value in found.items()}
    # Options are called as on the command line: --from, not start.
    names = {option.lstrip("-").replace("-", "_"): one.name for one in ctx.command.params for option in one.opts}
    for name, value in settings.items():
        if name not in names or name == "config":
            raise typer.BadParameter(f"{path}: there is no option --{name.replace('_', '-')}", param_hint="--config")
        if not isinstance(value, bool | int | float | str):
            raise typer.BadParameter(f"{path}: {name} must be a text, a number or true or false", param_hint="--config")
    ctx.default_map = {**(ctx.default_map or {}), **{names[name]: value for name, value in settings.items()}}
    return path


def _model_option(help: str, *names: str, **options: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Model", show_default=False, **options)


def _training_option(help: str, *names: str, **options: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Training", **options)


def _token_option(help: str, *names: str, **options: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Tokens and batches", **options)


# Options of one kind of model only.
_RECURRENT = ("hidden_size", "cell", "score", "order", "attention", "coverage")
_TRANSFORMER = ("ffn_size", "heads", "norm", "shared")
# Options that a translator to continue from determines.
_VOCABULARY = ("unit", "target_unit", "joint", "max_size", "min_count", "lower")
_MODEL = ("model", "embed_size", "layers", "dropout", *_RECURRENT, *_TRANSFORMER)
DROPOUT = 0.2


@dataclass(frozen=True)
class Train:
    """Train a translator on pairs of texts.

    Writes FOLDER/model.regard (the translator of the best epoch), FOLDER/checkpoint.regard and FOLDER/metrics.jsonl.
    Ctrl-C or SIGTERM saves a checkpoint and stops; the same command with --resume continues, and ends with the same
    weights as without an interruption.

    Started by torchrun, its processes train together, on a GPU each with --device cuda:
    torchrun --nproc-per-node 4 -m regard.cli translate train … --accumulate 4
    """

    data: Data
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Folder for model, checkpoint and metrics.")]
    target: Target = None
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            callback=_read_config,
            is_eager=True,
            help="TOML file of these options, one per line, such as epochs = 30; the command line has precedence.",
        ),
    ] = None
    valid: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Validation pairs, for early stopping. Default: a twentieth of DATA."),
    ] = None
    valid_target: Annotated[str | None, typer.Option(metavar="FILE", help="The target texts of --valid.")] = None
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE", help="Continue from this translator, or fine-tune it on other pairs."),
    ] = None
    unit: Annotated[str, _token_option("What a token is: words, characters, sentencepiece or bpe.")] = "words"
    target_unit: Annotated[str | None, _token_option("What a token of the target is, if different.")] = None
    joint: Annotated[bool, _token_option("One vocabulary for both sides.", "--joint")] = False
    max_size: Annotated[
        int | None, _token_option("Maximum size of a vocabulary; required by sentencepiece and bpe.")
    ] = None
    min_count: Annotated[int, _token_option("Leave out tokens with a lower count.")] = 1
    lower: Annotated[bool, _token_option("Lowercase all texts.", "--lower")] = False
    sampling: Annotated[float, _token_option("Another random segmentation in every epoch; 0.1 is good for bpe.")] = 0.0
    batch_size: Annotated[int, _token_option("Pairs in a batch.")] = 64
    batch_tokens: Annotated[int | None, _token_option("Instead, tokens in a batch on the longer side.")] = None
    max_tokens: Annotated[int, _token_option("Leave out pairs with more tokens on either side.")] = 200
    model: Annotated[str, _model_option("recurrent (default) or transformer.")] = "recurrent"
    embed_size: Annotated[int | None, _model_option("Size of an embedding: 256.")] = None
    layers: Annotated[int | None, _model_option("Layers: 1, of a transformer 3.")] = None
    dropout: Annotated[float | None, _model_option("Dropout probability of embeddings and outputs: 0.2.")] = None
    hidden_size: Annotated[int | None, _model_option("Recurrent: size of a state: 256.")] = None
    cell: Annotated[str | None, _model_option("Recurrent: gru (default) or lstm.")] = None
    score: Annotated[str | None, _model_option("Recurrent: additive (default), dot, bilinear or gaussian.")] = None
    order: Annotated[
        str | None, _model_option("Recurrent: textbook (default): attend, then step; luong: step, then attend.")
    ] = None
    attention: Annotated[
        str | None, _model_option("Recurrent: soft (default), hard (one token at a time) or none.")
    ] = None
    coverage: Annotated[
        bool | None, _model_option("Recurrent: let the score depend on past attention.", "--coverage")
    ] = None
    ffn_size: Annotated[int | None, _model_option("Transformer: units of its position-wise networks: 1024.")] = None
    heads: Annotated[int | None, _model_option("Transformer: heads of its attention: 4.")] = None
    norm: Annotated[
        str | None, _model_option("Transformer: normalise before (pre, default) or after (post) a part.")
    ] = None
    shared: Annotated[
        bool | None, _model_option("Transformer: one embedding for both sides; needs --joint.", "--shared")
    ] = None
    epochs: Annotated[int, _training_option("Maximum number of epochs.")] = 20
    seconds: Annotated[float | None, _training_option("Time limit in seconds.")] = None
    optimizer: Annotated[str, _training_option("adam or adamw.")] = "adam"
    learning_rate: Annotated[float, _training_option("Largest learning rate.")] = 1e-3
    schedule: Annotated[
        str, _training_option("cosine; plateau: halved when the loss stops improving; inverse: 1/√step.")
    ] = "cosine"
    warmup: Annotated[int, _training_option("Steps over which the learning rate rises.")] = 100
    weight_decay: Annotated[float, _training_option("Of adamw.")] = 0.0
    beta2: Annotated[float, _training_option("Of Adam's second moments; transformers often have 0.98.")] = 0.999
    clip: Annotated[float, _training_option("Maximum norm of the gradient.")] = 1.0
    accumulate: Annotated[int, _training_option("Batches in a step.")] = 1
    average: Annotated[int, _training_option("Average the weights of this many epochs, the last ones.")] = 1
    criterion: Annotated[str, _training_option("What chooses the best epoch: loss, bleu or exact.")] = "loss"
    patience: Annotated[int, _training_option("Stop after this many epochs without improvement.")] = 5
    label_smoothing: Annotated[float, _training_option("Probability spread over all tokens.")] = 0.1
    scheduled_sampling: Annotated[float, _training_option("Final fraction of input tokens that are predictions.")] = 0.0
    precision: Annotated[str, _training_option("float32, or bfloat16 for matrix products.")] = "float32"
    seed: Annotated[int, _training_option("Of all random numbers.")] = 0
    threads: Annotated[
        int | None,
        _training_option("Threads on a CPU. Default: the number that is fastest in a few steps.", show_default=False),
    ] = None
    device: Device = "cpu"
    log: Annotated[
        Log, typer.Option(help="Log lines where standard error is no terminal; json: also on a terminal.")
    ] = Log.text
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write FOLDER/tensorboard too.")] = False
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint in the folder, or start if there is none.")
    ] = False
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
        if self.model not in ("recurrent", "transformer"):
            raise typer.BadParameter(f"must be recurrent or transformer, got {self.model!r}", param_hint="--model")
        for name in self._given(_RECURRENT if self.model == "transformer" else _TRANSFORMER):
            raise typer.BadParameter(f"a {self.model} model has no {_option(name)}", param_hint=_option(name))
        for name in self._given((*_MODEL, *_VOCABULARY) if self.start is not None else ()):
            raise typer.BadParameter(
                f"{_option(name)} and --from exclude each other: the translator has its own", param_hint="--from"
            )

    def _given(self, names: Sequence[str]) -> Iterator[str]:
        """Those of the options that are given. A flag that is not may be None or False."""
        defaults = {each.name: each.default for each in fields(self)}
        for name in names:
            given = getattr(self, name)
            if given is not None and given is not False and given != defaults[name]:
                yield name

    def run(self) -> None:
        from regard.seq2seq.model import Architecture
        from regard.seq2seq.pair_training import MODEL, Lesson, learn
        from regard.seq2seq.processes import Processes, process_group
        from regard.seq2seq.training_settings import Training
        from regard.seq2seq.transformer import TransformerArchitecture
        from regard.seq2seq.translator import Translator

        # Every option has the name of its field; one that is not given has the default of the field.
        kinds = (TransformerArchitecture if self.model == "transformer" else Architecture, Lesson, Training)
        options = {each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) is not None}
        options.setdefault("dropout", DROPOUT)
        made: Any = [
            kind(**{each.name: options[each.name] for each in fields(kind) if each.name in options}) for kind in kinds
        ]
        check_device(self.device)
        with _sigterm_as_interrupt(), process_group(self.device) as device:
            is_main = Processes().is_main
            folder, resume = self._folder(is_main)
            with spinner(f"Reading {self.data}"):
                train, valid = self._pairs()
                start = None if self.start is None else Translator.load(self.start)
            with self._watched(f"Learning from {len(train):,} pairs") as watch:
                learned = learn(
                    train,
                    valid,
                    architecture=None if start is not None else made[0],
                    lesson=made[1],
                    training=made[2],
                    start=start,
                    device=device,
                    folder=folder,
                    resume=resume,
                    watch=watch,
                    threads="measured" if self.threads is None else self.threads,
                    tensorboard=self.tensorboard,
                )
            if learned.outcome.ended == "interrupted":
                if is_main:
                    say(f"stopped after {learned.outcome.steps:,} steps; continue with the same command and --resume")
                raise KeyboardInterrupt
            if is_main:
                self._report(learned.outcome)
                say(f"saved {folder / MODEL} ({file_size(str(folder / MODEL))})")

    def _folder(self, is_main: bool) -> tuple[Path, bool]:
        """The folder to write to, and whether there is a training to resume in it.

        What a training left that was killed before its first checkpoint does not prevent a new one.
        """
        from regard.seq2seq.trainer import CHECKPOINT, METRICS, TENSORBOARD

        folder = Path(self.out)
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder}: is not a folder")
        if self.resume and (folder / CHECKPOINT).is_file():
            return folder, True
        if not is_main:
            return folder, False
        found = [one.name for one in folder.iterdir()] if folder.is_dir() else []
        others = [name for name in found if name not in (METRICS, TENSORBOARD) and not name.startswith(".")]
        if others and not self.force:
            if self.resume:
                raise ValueError(
                    f"{folder}: contains no {CHECKPOINT} to resume from, but {', '.join(sorted(others)[:3])}"
                )
            raise ValueError(
                f"{folder}: is not empty; continue its training with --resume, or start a new one with --force"
            )
        if self.resume:
            say(f"{folder}: there is no checkpoint yet, the training starts from the beginning")
        folder.mkdir(parents=True, exist_ok=True)
        return folder, False

    def _pairs(self) -> tuple[Pairs, Pairs]:
        whole = read_data(self.data, self.target)
        if self.valid is not None:
            return whole, read_data(self.valid, self.valid_target)
        train, valid = whole.split(VALIDATION_FRACTION)
        if not len(train) or not len(valid):
            raise ValueError(f"{self.data}: {len(whole)} pairs are too few to split off validation pairs; give --valid")
        return train, valid

    @contextmanager
    def _watched(self, what: str) -> Iterator[Callable[[TrainingProgress], None]]:
        """What shows the progress: a bar on a terminal, lines elsewhere."""
        with progress_bar(what, quiet=self.log is Log.json, elapsed=False) as update:
            if update is not None:
                yield partial(_show, update, [])
            else:
                yield LogLines(self.log)

    def _report(self, outcome: TrainingOutcome) -> None:
        reason = {
            "epochs": "all epochs are done",
            "patience": f"no improvement in {self.patience} epochs",
            "seconds": f"the limit of {self.seconds:.0f} seconds is reached" if self.seconds else "",
        }
        best = {
            "loss": f"a validation loss of {outcome.best:.3g} nats per token",
            "bleu": f"a BLEU of {outcome.best:.2f} on the validation pairs",
            "exact": f"{outcome.best:.2%} of the validation pairs exact",
        }
        say(
            f"{len(outcome.losses)} epochs, {outcome.steps:,} steps, {outcome.seconds:.0f} s: {reason[outcome.ended]}. "
            f"Best epoch: {outcome.best_epoch + 1}, with {best[outcome.criterion]}"
        )


class LogLines:
    """Progress as lines on standard error: one after every epoch, and one now and then within it."""

    def __init__(self, form: Log) -> None:
        self._form, self._epoch, self._written = form, 1, monotonic()
        self._measures: dict[str, float] = {}

    def __call__(self, at: TrainingProgress) -> None:
        validated = dict(at.measures) != self._measures
        if not validated and monotonic() - self._written < SECONDS_PER_LINE:
            return
        self._measures, self._written = dict(at.measures), monotonic()
        if self._form is Log.json:
            numbers = {
                "epoch": at.epoch, "step": at.step, "loss": at.loss,
                **{f"validation_{name}": value for name, value in at.measures.items()},
                "tokens_per_second": round(at.tokens_per_second), "seconds_left": round(at.seconds_left, 1),
            }  # fmt: skip
            say(json.dumps(numbers))
            return
        say(f"epoch {at.epoch}/{at.epochs}, step {at.step}/{at.steps}: {', '.join(_numbers(at))}")


def _numbers(at: TrainingProgress) -> list[str]:
    """Loss, measures, speed and the time left."""
    measures = {"valid" if name == "loss" else name: value for name, value in at.measures.items()}
    parts = [f"{name} {value:.3g}" for name, value in {"loss": at.loss, **measures}.items()]
    rate = at.tokens_per_second
    parts.append(f"{rate / 1e3:,.0f}k tok/s" if rate >= 1e4 else f"{rate:,.0f} tok/s")
    return [*parts, f"{time_left(at.seconds_left)} left"]


def _show(update: Update, losses: list[float], at: TrainingProgress) -> None:
    """Update the bar and the text beside it, in 80 columns; where there is room the losses are a curve."""
    from regard.plot.live import sparkline

    if math.isfinite(at.loss):
        losses.append(at.loss)
    description, parts = f"epoch {at.epoch}/{at.epochs}", _numbers(at)
    room = COLUMNS - BAR_COLUMNS - len(description)
    # The speed is left out first, then measures from the last.
    while len(", ".join(parts)) > room and len(parts) > 2:
        parts.pop(-2)
    text = ", ".join(parts)
    if room - len(text) > 4 and losses:
        text = f"{sparkline(losses, room - len(text) - 1)} {text}"
    update(total=at.steps, completed=at.step, status=text, description=description)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """A context in which SIGTERM ends the command as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
