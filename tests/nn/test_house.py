"""House rules: what an import loads, code in the documents, torch.compile, public names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import regard
from regard.nn import (
    AdditiveScore,
    AttentionPooling,
    DotProductScore,
    HardAttention,
    LeaveOneOut,
    multi_head,
    sparsemax,
)
from support.modules import inputs

ROOT = Path(__file__).resolve().parents[2]
NOT_NEEDED = ("sklearn", "numba", "llvmlite", "scipy", "pandas", "polars", "narwhals", "matplotlib", "triton", "rich")


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_numpy_and_torch_are_all_it_needs():
    """Not only unused but absent: importing any of the others is made an error."""
    done = run(
        f"""
import sys
for name in {NOT_NEEDED!r}:
    sys.modules[name] = None
import json, torch
import regard.nn
x = torch.randn(2, 3, 4)
pooling = regard.nn.AttentionPooling(regard.nn.GaussianScore())
pooling(x, x, x, torch.tensor([2, 3])).sum().backward()
print(json.dumps(sorted(name for name, module in sys.modules.items() if name in {NOT_NEEDED!r} and module)))
"""
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_without_torch_the_error_names_the_extra():
    done = run("import sys; sys.modules['torch'] = None; import regard.nn")
    assert done.returncode == 1
    assert "regard.nn needs torch" in done.stderr
    assert "regard[nn]" in done.stderr


def test_public_names():
    assert regard.nn.__all__ == sorted(regard.nn.__all__, key=lambda name: (name[0].islower(), name))
    for name in regard.nn.__all__:
        assert getattr(regard.nn, name).__doc__


@pytest.mark.parametrize(("page", "count"), [("masks.md", 3), ("hard_attention.md", 1)])
def test_the_pages_on_modules_run_as_written(page, count):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.S)
    assert len(blocks) == count
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)


@pytest.mark.parametrize(
    ("module", "options"),
    [
        (AttentionPooling(AdditiveScore(3, 3, 4), dropout=0.0), {"valid_lens": torch.tensor([3, 0])}),
        (
            AttentionPooling(DotProductScore(), normalise=sparsemax),
            {"attn_mask": torch.zeros(5).index_fill(0, torch.tensor(4), -torch.inf)},
        ),
        (multi_head(AttentionPooling(DotProductScore()), 1, 3, value_size=2), {"valid_lens": torch.tensor([3, 4])}),
    ],
    ids=["additive", "sparsemax", "heads"],
)
def test_modules_compile_in_one_graph(module, options):
    """Without a compiler: the graph is captured forward and backward and run as it is."""
    torch.compiler.reset()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    q, k, v = (t.float() for t in inputs())
    v[0, 4] = torch.nan
    grads = []
    for call in (module, compiled):
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        output = call(*leaves, **options)
        output.square().sum().backward()
        grads.append([output.detach(), *(t.grad for t in leaves)])
    for plain, other in zip(*grads, strict=True):
        assert plain.isfinite().all()
        assert torch.allclose(plain, other, atol=1e-6)


def test_hard_attention_compiles_in_one_graph():
    torch.compiler.reset()
    attention = HardAttention(DotProductScore(), samples=2, baseline=LeaveOneOut())
    q, k, v = inputs()
    pooled = torch.compile(attention, backend="aot_eager", fullgraph=True)(q.requires_grad_(), k, v)
    pooled.objective(pooled.output.square().sum(-1)).sum().backward()
    assert q.grad.isfinite().all()
    assert q.grad.any()
