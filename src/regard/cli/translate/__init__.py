"""``regard translate``: train a model on pairs of texts, translate with it, evaluate it, and show its alignments."""

from __future__ import annotations

import typer

from regard.cli.translate.align import Align
from regard.cli.translate.evaluate import Evaluate
from regard.cli.translate.run import RunTranslator
from regard.cli.translate.train import Train

EPILOG = "Pairs are a file of lines source<TAB>target, or two text files, line by line; .gz files are unpacked."

app = typer.Typer(
    help="Sequence to sequence with attention: train on pairs of texts, translate, evaluate, align.",
    epilog=EPILOG,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train", epilog=EPILOG)(Train)
app.command("run")(RunTranslator)
app.command("eval", epilog=EPILOG)(Evaluate)
app.command("align", epilog=EPILOG)(Align)
