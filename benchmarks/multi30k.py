"""Multi30k: train a GRU with attention, translate the test set, and score it by sacrebleu.

    PYTHONPATH=src python benchmarks/multi30k.py --data FOLDER --pair de-en --device cuda --out OUT
    python benchmarks/multi30k.py --data FOLDER --pair de-en --out OUT --score

FOLDER holds train, val and test_2016_flickr as raw text, NAME.LANGUAGE.gz. Texts are lowercased, subwords are
sentencepiece's. The first command trains on ``train``, keeps the epoch with the least loss on ``val``, and writes its
translations; the second scores them, where sacrebleu is at hand, and with --save writes results/multi30k.md.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from machine import save, table
from regard.data import Pairs, read_parallel

SPLITS = {"val": "val", "test": "test_2016_flickr"}
BEAMS = (1, 5)


def pairs(data: Path, split: str, pair: str) -> Pairs:
    source, target = pair.split("-")
    return read_parallel(data / f"{split}.{source}.gz", data / f"{split}.{target}.gz")


def train(options: argparse.Namespace) -> None:
    import torch

    from regard.seq2seq.model import Architecture
    from regard.seq2seq.pair_training import Lesson, learn
    from regard.seq2seq.trainer import Training, TrainingProgress

    def watch(at: TrainingProgress) -> None:
        if at.step % 200 == 0:
            speed = f"{at.tokens_per_second:,.0f} tokens/s"
            print(f"epoch {at.epoch} loss {at.loss:.3f} held out {at.validation:.3f} {speed}", flush=True)

    began = time.perf_counter()
    learned = learn(
        pairs(options.data, "train", options.pair),
        pairs(options.data, "val", options.pair),
        architecture=Architecture(embed_size=256, hidden_size=options.hidden, dropout=options.dropout),
        lesson=Lesson(
            "sentencepiece",
            max_size=options.pieces,
            lower=True,
            batch_size=options.batch,
            precision=options.precision,
        ),
        training=Training(
            options.epochs, options.rate, warmup=400, patience=8, seconds=options.seconds, seed=options.seed
        ),
        device=options.device,
        watch=watch,
    )
    seconds, outcome = time.perf_counter() - began, learned.outcome
    options.out.mkdir(parents=True, exist_ok=True)
    told: dict[str, Any] = {
        "pair": options.pair, "seconds": seconds, "epochs": len(outcome.losses), "best_epoch": outcome.best_epoch + 1,
        "best": outcome.best, "losses": outcome.losses, "validations": outcome.validations, "ended": outcome.ended,
        "parameters": sum(part.numel() for part in learned.translator.model.parameters()),
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu", "torch": torch.__version__,
        "settings": {name: value for name, value in vars(options).items() if name not in ("data", "out")},
    }  # fmt: skip
    for split, file in SPLITS.items():
        source = pairs(options.data, file, options.pair).source
        for width in BEAMS:
            began = time.perf_counter()
            said = learned.translator.translate(source, beam=width, batch_size=128)
            told[f"{split}_{width}_seconds"] = time.perf_counter() - began
            (options.out / f"{options.pair}.{split}.{width}").write_text(
                "".join(f"{one.text}\n" for one in said), encoding="utf-8"
            )
    learned.translator.save(options.out / f"{options.pair}.regard", force=True)
    (options.out / f"{options.pair}.json").write_text(json.dumps(told), encoding="utf-8")
    print(f"{options.pair}: {seconds:.0f} s, {told['epochs']} epochs, kept {told['best_epoch']}: {told['best']:.3f}")


def score(options: argparse.Namespace) -> dict[str, Any]:
    from regard.seq2seq.measures import quality

    told = json.loads((options.out / f"{options.pair}.json").read_text(encoding="utf-8"))
    for split, file in SPLITS.items():
        wanted = [text.lower() for text in pairs(options.data, file, options.pair).target]
        for width in BEAMS:
            said = (options.out / f"{options.pair}.{split}.{width}").read_text(encoding="utf-8").splitlines()
            told[f"{split}_{width}"] = quality(said, wanted)._asdict()
    return told


def text_of(rows: list[dict[str, Any]]) -> str:
    head = [
        "pair",
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
            lines.append([row["pair"], *made, file, *bleu, f"{row[f'{split}_5']['chrf']:.2f}", *seconds])
    first = rows[0]
    told = f"{first['device']}, torch {first['torch']}; lowercased, sacrebleu {first['test_1']['bleu_signature']}"
    return f"{told}\n\n{table(head, lines)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pair", default="de-en", help="of languages; with --score several, such as de-en,en-fr")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pieces", type=int, default=8000)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--dropout", type=float, default=0.4)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--seed", type=int, default=0)
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
