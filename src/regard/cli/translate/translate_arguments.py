"""Arguments that the commands of ``regard translate`` share, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.data import Pairs
    from regard.seq2seq.translator import Translator

Data = Annotated[str, typer.Argument(help="Pairs: lines of source<TAB>target; with --target, the source texts.")]
Target = Annotated[str | None, typer.Option(metavar="FILE", help="The target texts, one line per line of DATA.")]
Model = Annotated[str, typer.Argument(help="Translator file, such as the model.regard that train wrote.")]
Beam = Annotated[int, typer.Option(min=1, help="Width of the beam search; 1 is greedy search.")]
Ensemble = Annotated[
    list[str] | None,
    typer.Option(
        "--ensemble", metavar="FILE", help="Another translator, to average probabilities with; may be repeated."
    ),
]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]


def read_data(data: str, target: str | None) -> Pairs:
    """The pairs of one file of pairs, or of two text files."""
    from regard.data import read_pairs, read_parallel

    return read_pairs(data) if target is None else read_parallel(data, target)


def load_translator(model: str, device: str, ensemble: Sequence[str] | None = None) -> Translator:
    """The translator in a file, or an ensemble of several, moved to a device."""
    from regard.seq2seq.translator import Translator

    check_device(device)
    found = [Translator.load(path) for path in (model, *(ensemble or ()))]
    for path, one in zip(ensemble or (), found[1:], strict=True):
        if (one.source, one.target) != (found[0].source, found[0].target):
            raise ValueError(f"{path}: has other vocabularies than {model}")
    return (found[0] if len(found) == 1 else Translator.ensemble(found)).to(device)


def check_device(device: str) -> None:
    """Raise ValueError unless torch can use the device."""
    import torch

    if device not in ("cpu", "cuda"):
        raise ValueError(f"--device must be cpu or cuda, got {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda needs a CUDA device, and torch finds none on this machine")
