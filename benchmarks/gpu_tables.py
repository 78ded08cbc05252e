"""What ``gpu.py`` found, as Markdown."""

from __future__ import annotations

from typing import Any

from machine import table


def text_of(found: dict[str, Any], far: int) -> str:
    """The record as tables, with what was asked for beside what was measured."""
    parts = [
        f"{found['device']}, torch {found['torch']}, Triton {found['triton']} ({found['when']})",
        f"Gaussian, {far:,} × {far:,}, one value column, float32:",
        gaussian(found["gaussian"]),
    ]
    if any(row["peers"] for row in found["gaussian"]):
        parts += [
            "The same by others, each with the number of queries at which it is fastest, against all keys:",
            peers(found["gaussian"]),
        ]
    parts += [figures(found["loo"], found["additive"]), "Dot products:", dot(found["dot"])]
    if found["layers"]:
        parts += ["Layers with valid lengths:", layers(found["layers"])]
    return "\n\n".join(parts)


def gaussian(rows: list[dict[str, Any]]) -> str:
    head = ["d", "w", "T pairs/s", "floor", "verdict", "error", "forward ms", "with backward", "ratio", "same bits"]
    cells = []
    for row in rows:
        verdict = "pass" if row["rate"] >= row["floor"] else "SHORT"
        ratio = f"{row['ratio']:.2f} {'≤' if row['ratio'] <= 4.5 else '>'} 4.5"
        bits = "yes" if row["same_bits"] else "NO"
        first = [
            str(row["d"]),
            f"{row['w']:g}",
            f"{row['rate']:.2f}",
            f"≥ {row['floor']}",
            verdict,
            f"{row['error']:.1e}",
        ]
        cells.append([*first, f"{row['forward_ms']:.1f}", f"{row['both_ms']:.1f}", ratio, bits])
    return table(head, cells)


def peers(rows: list[dict[str, Any]]) -> str:
    cells = []
    for row in rows:
        for peer in row["peers"]:
            figures = [peer.get("reason", ""), "", "", ""]
            if "rate" in peer:
                # Records of before did not keep the number of queries.
                queries = f"{peer['queries']:,}" if "queries" in peer else ""
                figures = [f"{peer['rate']:.3f}", queries, f"{peer['error']:.1e}", f"{row['rate'] / peer['rate']:.1f}×"]
            cells.append([str(row["d"]), peer["name"], *figures])
    return table(["d", "peer", "T pairs/s", "queries", "error", "regard is"], cells)


def figures(loo: dict[str, Any], add: dict[str, Any]) -> str:
    rows = [
        [
            f"leave-one-out value and gradient per feature, n = {loo['n']:,}, d = {loo['d']}",
            f"{loo['seconds']:.2f} s",
            "≤ 2.5 s",
        ],
        [
            f"additive, {add['hidden']} units, {add['n']:,} × {add['n']:,}, forward",
            f"{add['forward_ms']:.2f} ms",
            "≤ 3.8 ms",
        ],
        ["the same with backward", f"{add['both_ms']:.1f} ms", "≤ 15 ms"],
        ["its extra memory", f"{add['extra_mb']:.0f} MB", "≤ 64 MB"],
        ["its error", f"{add['error']:.1e}", f"torch {add['torch_error']:.1e}"],
        ["error of its gradients", f"{add['gradient_error']:.1e}" if "gradient_error" in add else "", ""],
        ["forward by torch", f"{add['torch_ms']:.0f} ms", ""],
        ["forward by torch.compile", f"{add['compile_ms']:.1f} ms", ""],
    ]
    return table(["what", "measured", "asked for"], rows)


def dot(rows: list[dict[str, Any]]) -> str:
    head = ["dtype", "n", "d", "ms", "SDPA ms", "with backward", "SDPA", "error", "SDPA"]
    times = ("ms", "sdpa_ms", "both_ms", "sdpa_both_ms")
    cells = []
    for row in rows:
        first = [row["dtype"], f"{row['n']:,}", str(row["d"]), *(f"{row[name]:.2f}" for name in times)]
        cells.append([*first, f"{row['error']:.1e}", f"{row['sdpa_error']:.1e}"])
    return table(head, cells)


def layers(rows: list[dict[str, Any]]) -> str:
    head = ["layer", "batch × n, d", "ms", "torch", "torch.compile", "with backward", "torch", "torch.compile"]
    times = [f"{who}{what}_ms" for what in ("", "_both") for who in ("ours", "torch", "compile")]
    cells = [
        [row["name"], f"{row['B']} × {row['n']}, {row['d']}", *(f"{row[name]:.2f}" for name in times)] for row in rows
    ]
    return table(head, cells)
