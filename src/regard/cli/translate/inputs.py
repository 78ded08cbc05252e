"""What the commands of ``regard translate`` have in common: pairs, and a model to open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.data import Pairs
    from regard.seq2seq.translator import Translator

Data = Annotated[str, typer.Argument(help="Pairs: lines of source<TAB>target; with --target, the source texts.")]
Target = Annotated[str | None, typer.Option(metavar="FILE", help="The target texts, one line per line of DATA.")]
Model = Annotated[str, typer.Argument(help="Translator file, such as the model.regard that train wrote.")]
Beam = Annotated[int, typer.Option(min=1, help="Hypotheses that grow side by side; 1 takes the likeliest token.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]


def pairs(data: str, target: str | None) -> Pairs:
    """The pairs of one file, or of two."""
    from regard.data import read_pairs, read_parallel

    return read_pairs(data) if target is None else read_parallel(data, target)


def opened(model: str, device: str) -> Translator:
    """The translator in a file, on a device that is there."""
    from regard.seq2seq.translator import Translator

    check_device(device)
    return Translator.load(model).to(device)


def check_device(device: str) -> None:
    """Refuse a device that this machine does not have."""
    import torch

    if device not in ("cpu", "cuda"):
        raise ValueError(f"--device must be cpu or cuda, got {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: this machine has no CUDA device that torch can use")
