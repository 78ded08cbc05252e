"""Multi30k: train a GRU with attention or a transformer, translate the test set, and score it.

    PYTHONPATH=src python benchmarks/multi30k.py --data FOLDER --pair de-en --device cuda --out OUT
    PYTHONPATH=src python benchmarks/multi30k.py --data FOLDER --pair de-en --device cuda --out OUT --model transformer
    python benchmarks/multi30k.py --data FOLDER --pair de-en --out OUT --score [--model transformer] [--save]

FOLDER holds train, val and test_2016_flickr as raw text, NAME.LANGUAGE.gz. Texts are lowercased. The first two commands
train on ``train``, keep the best epoch on ``val``, print each figure as soon as it is known, and write the
translations. They need numpy, torch and sentencepiece only; BLEU is then ``regard.seq2seq.corpus_bleu``. The third
scores the translations by sacrebleu, and with --save writes results/multi30k.md.

The transformer's recipe is that of published small transformers on Multi30k: four layers of 256 features with dropout
0.3, label smoothing 0.1, a joint vocabulary of byte pairs with BPE dropout, batches by tokens, the inverse square root
of the step as learning rate, and the mean of the last ten epochs' weights.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from machine import save, table
from regard.data import Pairs, read_parallel

SPLITS = {"val": "val", "test": "test_2016_flickr"}
BEAMS = (1, 5)


def pairs(data: Path, split: str, pair: str, limit: int | None = None) -> Pairs:
    source, target = pair.split("-")
    whole = read_parallel(data / f"{split}.{source}.gz", data / f"{split}.{target}.gz")
    return whole if limit is None else whole.take(range(min(limit, len(whole))))


def stem(options: argparse.Namespace) -> str:
    return options.pair if options.model == "gru" else f"{options.pair}.{options.model}"


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """Architecture, lesson and training of ``learn``."""
    from regard.seq2seq import Architecture, Lesson, Training, TransformerArchitecture

    if options.model == "gru":
        return {
            "architecture": Architecture(embed_size=256, hidden_size=options.hidden, dropout=options.dropout or 0.4),
            "lesson": Lesson(
                "sentencepiece",
                max_size=options.pieces or 8000,
                lower=True,
                batch_size=options.batch,
                precision=options.precision or "float32",
            ),
            "training": Training(
                options.epochs or 30,
                options.rate or 1e-3,
                warmup=400,
                patience=8,
                seconds=options.seconds,
                seed=options.seed,
            ),
        }
    return {
        "architecture": TransformerArchitecture(
            options.embed,
            options.ffn,
            options.layers,
            options.heads,
            options.dropout or 0.3,
            norm=options.norm,
            shared=True,
        ),
        "lesson": Lesson(
            "bpe",
            max_size=options.pieces or 6000,
            lower=True,
            joint=True,
            sampling=options.sampling,
            batch_tokens=options.batch_tokens,
            precision=options.precision or ("bfloat16" if options.device == "cuda" else "float32"),
        ),
        "training": Training(
            options.epochs or 80,
            options.rate or 1.5e-3,
            schedule="inverse",
            warmup=options.warmup,
            patience=20,
            seconds=options.seconds or 270.0,
            seed=options.seed,
            beta2=0.98,
            average=options.average,
            criterion="bleu",
        ),
    }


@contextmanager
def stage(name: str, record: dict[str, Any]) -> Iterator[None]:
    began = time.perf_counter()
    yield
    record[f"{name}_seconds"] = time.perf_counter() - began
    print(f"{name}: {record[f'{name}_seconds']:.1f} s", flush=True)


def train(options: argparse.Namespace) -> None:
    import torch

    from regard.seq2seq import corpus_bleu, learn
    from regard.seq2seq.trainer import TrainingProgress

    latest: dict[str, float] = {}

    def watch(at: TrainingProgress) -> None:
        if at.measures and at.measures != latest:
            latest.update(at.measures)
            found = ", ".join(f"{name} {value:.3f}" for name, value in at.measures.items())
            speed = f"{at.tokens_per_second:,.0f} tokens/s, {time.perf_counter() - began:.0f} s"
            print(f"epoch {at.epoch} step {at.step} loss {at.loss:.3f}, held out: {found}; {speed}", flush=True)

    options.out.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {
        "pair": options.pair, "model": options.model, "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "settings": {name: value for name, value in vars(options).items() if name not in ("data", "out")},
    }  # fmt: skip
    began = time.perf_counter()
    with stage("reading", record):
        given = [pairs(options.data, split, options.pair, options.limit) for split in ("train", "val")]
    with stage("training", record):
        learned = learn(*given, **settings(options), device=options.device, watch=watch)
    translator, outcome = learned
    record.update(
        seconds=record["training_seconds"],
        epochs=len(outcome.losses),
        best_epoch=outcome.best_epoch + 1,
        best=outcome.best,
        losses=outcome.losses,
        validations=outcome.validations,
        ended=outcome.ended,
        parameters=sum(part.numel() for part in translator.model.parameters()),
    )
    print(
        f"{record['parameters'] / 1e6:.2f} M parameters, {record['epochs']} epochs, kept {record['best_epoch']}: "
        f"{outcome.criterion} {record['best']:.3f}, ended by {outcome.ended}",
        flush=True,
    )
    translator.save(options.out / f"{stem(options)}.regard", force=True)
    for split, file in SPLITS.items():
        held_out = pairs(options.data, file, options.pair, options.limit)
        wanted = [text.lower() for text in held_out.target]
        for width in BEAMS:
            name = f"{split}_{width}"
            with stage(name, record):
                said = [one.text for one in translator.translate(held_out.source, beam=width, batch_size=128)]
            record[f"{name}_bleu"] = corpus_bleu(said, wanted)
            print(f"{file}, beam {width}: BLEU {record[f'{name}_bleu']:.2f}", flush=True)
            text = "".join(f"{one}\n" for one in said)
            (options.out / f"{stem(options)}.{split}.{width}").write_text(text, encoding="utf-8")
    (options.out / f"{stem(options)}.json").write_text(json.dumps(record), encoding="utf-8")
    print(f"{stem(options)}: {time.perf_counter() - began:.0f} s in all", flush=True)


def score(options: argparse.Namespace) -> dict[str, Any]:
    from regard.seq2seq.measures import quality

    record = json.loads((options.out / f"{stem(options)}.json").read_text(encoding="utf-8"))
    for split, file in SPLITS.items():
        wanted = [text.lower() for text in pairs(options.data, file, options.pair, options.limit).target]
        for width in BEAMS:
            said = (options.out / f"{stem(options)}.{split}.{width}").read_text(encoding="utf-8").splitlines()
            record[f"{split}_{width}"] = quality(said, wanted)._asdict()
    return record


def text_of(rows: list[dict[str, Any]]) -> str:
    head = [
        "pair",
        "model",
        "training",
        "epochs",
        "parameters",
        "",
        "greedy BLEU",
        "beam 5 BLEU",
        "chrF",
        "greedy s",
        "beam 5 s",
    ]
    lines = []
    for row in rows:
        for split, file in SPLITS.items():
            bleu = [f"{row[f'{split}_{width}']['bleu']:.2f}" for width in BEAMS]
            seconds = [f"{row[f'{split}_{width}_seconds']:.1f}" for width in BEAMS]
            made = [f"{row['seconds']:.0f} s", str(row["epochs"]), f"{row['parameters'] / 1e6:.1f} M"]
            lines.append(
                [row["pair"], row.get("model", "gru"), *made, file, *bleu, f"{row[f'{split}_5']['chrf']:.2f}", *seconds]
            )
    first = rows[0]
    caption = f"{first['device']}, torch {first['torch']}; lowercased, sacrebleu {first['test_1']['bleu_signature']}"
    return f"{caption}\n\n{table(head, lines)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pair", default="de-en", help="of languages; with --score several, such as de-en,en-fr")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="gru", choices=("gru", "transformer"))
    parser.add_argument("--limit", type=int, help="pairs of every split, to try the command")
    parser.add_argument("--pieces", type=int, help="size of a vocabulary: 8000, joint 6000")
    parser.add_argument("--dropout", type=float, help="0.4, of the transformer 0.3")
    parser.add_argument("--rate", type=float, help="largest learning rate: 0.001, of the transformer 0.0015")
    parser.add_argument("--epochs", type=int, help="30, of the transformer 80")
    parser.add_argument("--seconds", type=float, help="limit of the training, of the transformer 270")
    parser.add_argument("--precision", help="float32, of the transformer on a GPU bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hidden", type=int, default=512, help="of the GRU")
    parser.add_argument("--batch", type=int, default=128, help="pairs, of the GRU")
    parser.add_argument("--embed", type=int, default=256, help="of the transformer, as what follows")
    parser.add_argument("--ffn", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--norm", default="pre", choices=("pre", "post"))
    parser.add_argument("--sampling", type=float, default=0.1, help="BPE dropout")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--warmup", type=int, default=1500)
    parser.add_argument("--average", type=int, default=10, help="epochs whose weights are averaged")
    parser.add_argument("--score", action="store_true", help="score what was translated")
    parser.add_argument("--save", action="store_true", help="with --score: write the results")
    options = parser.parse_args()
    if not options.score:
        train(options)
        return
    rows = [score(argparse.Namespace(**{**vars(options), "pair": pair})) for pair in options.pair.split(",")]
    text = text_of(rows)
    print(text)
    if options.save:
        save("multi30k", {"rows": rows}, text)


if __name__ == "__main__":
    main()
