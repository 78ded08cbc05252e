"""Compiled programs: their arithmetic, their cache, and interruptions."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import mpmath
import numpy as np
import pytest
from numba.core import cgutils

import regard
from regard.programs.cpu import compiled, tile_loops
from regard.programs.cpu.compiled import program
from regard.programs.cpu.lanes import CUTOFF_EXPONENT, LOG2E, block_lanes, block_program
from regard.programs.cpu.pair_scores import quarter_sine
from support.soak import FULL

POINTS = 200_000 if FULL else 20_000
PACKAGE = Path(regard.__file__).parent

#           dtype        lowest power  relative error
PRECISIONS = [(np.float32, -126.0, 2.5e-7), (np.float64, -1022.0, 4e-16)]
every_precision = pytest.mark.parametrize(("dtype", "lowest", "error"), PRECISIONS, ids=["float32", "float64"])
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])


@block_program("tile n c", of="tile")
def exp2_products(block):
    """tile = 2^(tile·c)."""
    c = block.broadcast(block.value("c"))
    with cgutils.for_range(block.builder, block.value("n")) as key:
        powers = [block.exp2_product(x, c) for x in block.load("tile", key.index)]
        block.store(powers, "tile", key.index)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Small programs around the arithmetic, cached in a folder of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))

        @program
        def powers(tile, c):
            exp2_products(tile, tile.shape[0], c)

        @program
        def decays(tile, peak, cap, log2e):
            tile_loops.exponentiate(tile, tile.shape[0], peak, cap, log2e)

        @program
        def tops(tile, top):
            tile_loops.row_maxima(tile, tile.shape[0], top)

        @program
        def ties(tile, peak):
            tile_loops.ties(tile, tile.shape[0], peak)

        @program
        def sines(x, out):
            for i in range(x.size):
                out[i] = quarter_sine(x[i], x.dtype.type)

        yield {"powers": powers, "decays": decays, "tops": tops, "ties": ties, "sines": sines}


def laid(values: np.ndarray) -> np.ndarray:
    """A row of numbers as a tile (T, lanes); the last ones are repeated to fill it."""
    lanes = block_lanes(values.itemsize)
    return np.resize(values, (-(-values.size // lanes), lanes))


def run_decays(tiny, gaps: np.ndarray) -> np.ndarray:
    dtype = gaps.dtype.type
    tile = laid(-gaps)
    tiny["decays"](tile, np.zeros(tile.shape[1], dtype), dtype(CUTOFF_EXPONENT[gaps.itemsize] / LOG2E), dtype(LOG2E))
    return tile.ravel()[: gaps.size]


# ---- arithmetic


@every_precision
@pytest.mark.parametrize("c", [1.0, -LOG2E, 3e5, -7e-6])
def test_powers_of_two_over_the_whole_range(c, dtype, lowest, error, tiny):
    c = dtype(c)
    rng = np.random.default_rng(1)
    random = rng.uniform(lowest, 0.0, POINTS), -rng.random(POINTS)
    exponents = np.concatenate([*random, np.arange(lowest, 1.0), np.arange(lowest, 0.0) + 0.5])
    x = (exponents / float(c)).astype(dtype)
    true = x.astype(np.longdouble) * np.longdouble(c)
    x, true = x[(true >= lowest) & (true <= 0.0)], true[(true >= lowest) & (true <= 0.0)]
    assert x.size > 2 * POINTS
    tile = laid(x)
    tiny["powers"](tile, c)
    assert np.abs(tile.ravel()[: x.size] / np.exp2(true) - 1).max() <= error


def test_powers_of_two_against_mpmath(tiny):
    half = [np.nextafter(-0.5, 0.0), -0.5, np.nextafter(-0.5, -1.0)]
    x = np.array([0.0, -1e-300, -5e-324, -(2.0**-30), *half, -1.0, -100.25, -1021.999])
    tile = laid(x)
    tiny["powers"](tile, 1.0)
    for power, value in zip(x, tile.ravel(), strict=False):
        assert abs(mpmath.mpf(float(value)) / mpmath.mpf(2) ** mpmath.mpf(float(power)) - 1) < 4e-16


@every_dtype
def test_decay_is_exactly_zero_below_the_cutoff(dtype, tiny):
    cap = dtype(CUTOFF_EXPONENT[dtype().itemsize] / LOG2E)
    largest = np.finfo(dtype).max
    got = run_decays(tiny, np.array([0.0, 1.0, np.nextafter(cap, dtype(0.0)), cap, largest, np.inf, np.nan], dtype))
    assert np.allclose(got[:2], [1.0, np.exp(-1.0)], rtol=3e-7)
    assert 0.0 < got[2] < 1e-29
    assert got[3:].tolist() == [0.0] * 4


@every_dtype
def test_decay_is_the_exponential(dtype, tiny):
    gaps = np.linspace(0.0, CUTOFF_EXPONENT[dtype().itemsize] / LOG2E * 0.999, POINTS).astype(dtype)
    expected = np.exp(-gaps.astype(np.longdouble))
    # log2(e) itself is rounded: an ulp of the gap, which the answer feels in proportion to the gap.
    allowed = np.finfo(dtype).eps * (2.5 + gaps.astype(float))
    assert (np.abs(run_decays(tiny, gaps) / expected - 1) <= allowed).all()


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 2.5e-7), (np.float64, 5e-16)], ids=["float32", "float64"])
def test_quarter_sine(dtype, error, tiny):
    x = np.concatenate([np.linspace(0.0, 1.0, POINTS), [1e-30, 1e-8, 0.5, 1.0 - 1e-7]]).astype(dtype)
    got = np.empty_like(x)
    tiny["sines"](x, got)
    expected = np.sin(x.astype(np.longdouble) * (2 * np.arctan(np.longdouble(1))))
    assert np.abs(got - expected).max() <= error
    assert np.abs(got[1:] / expected[1:] - 1).max() <= error
    assert got[0] == 0.0


@every_dtype
def test_peaks_and_ties(dtype, tiny):
    lanes = block_lanes(dtype().itemsize)
    tile = np.random.default_rng(2).integers(-4, 4, (9, lanes)).astype(dtype)
    tile[:, 0], tile[:4, 1] = -np.inf, -np.inf
    top = np.full(lanes, -np.inf, dtype)
    top[2] = 99.0
    tiny["tops"](tile, top)
    assert np.array_equal(top, np.where(np.arange(lanes) == 2, 99.0, tile.max(axis=0)))
    hits = tile.copy()
    tiny["ties"](hits, top)
    assert np.array_equal(hits, (tile == top) & (tile > -np.inf))


@every_dtype
@pytest.mark.parametrize("columns", [1, 2, 3, 9, 19])
@pytest.mark.parametrize("n", [0, 1, 17])
def test_sums_of_every_count_of_columns(n, columns, dtype):
    rng = np.random.default_rng(columns)
    lanes = block_lanes(dtype().itemsize)
    tile = rng.integers(-9, 9, (n + 2, lanes)).astype(dtype)
    phi = rng.integers(-9, 9, (n + 3, columns)).astype(dtype)
    phi.flags.writeable = False
    sums = np.zeros((columns, 2, lanes))
    tile_loops.reduce(tile, n, phi, 1, sums)
    assert np.array_equal(sums.sum(axis=1), phi[1 : n + 1].T @ tile[:n])


# ---- the cache


def run(code: str, cache: Path, package: Path = PACKAGE, **environment: str) -> subprocess.CompletedProcess[str]:
    """Another Python, with its own cache folder, that imports ``regard`` from beside ``package``."""
    path = os.pathsep.join([str(package.parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def copy(tmp_path):
    """The package's programs alone, with a caller in one file and its callee in another."""
    package = tmp_path / "copy" / "regard"
    programs = package / "programs" / "cpu"
    shutil.copytree(PACKAGE / "programs", programs.parent, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").write_text("")
    (programs / "callee.py").write_text(
        "from regard.programs.cpu.compiled import program\n\n\n@program\ndef add(x):\n    return x + 1.0\n"
    )
    (programs / "caller.py").write_text(
        "from regard.programs.cpu.callee import add\nfrom regard.programs.cpu.compiled import program\n\n\n"
        "@program\ndef twice(x):\n    return 2.0 * add(x)\n"
    )
    return package


CALL = (
    "from regard.programs.cpu.caller import twice; from regard.programs.cpu.compiled import notice;"
    "print(twice(1.0), len(notice.compiled))"
)
KEY = "from regard.programs.cpu.compiled import source_key; print(source_key())"


def test_an_edited_callee_changes_the_cached_caller(copy, tmp_path):
    cache = tmp_path / "cache"
    first = run(CALL, cache, copy)
    assert first.stdout.split() == ["4.0", "2"], first.stderr
    callee = copy / "programs" / "cpu" / "callee.py"
    before = callee.stat()
    callee.write_text(callee.read_text().replace("1.0", "2.0"))
    # Neither size nor time of the file tell.
    os.utime(callee, ns=(before.st_atime_ns, before.st_mtime_ns))
    shutil.rmtree(callee.parent / "__pycache__", ignore_errors=True)
    second = run(CALL, cache, copy)
    assert second.stdout.split() == ["6.0", "2"], second.stderr
    assert run(CALL, cache, copy).stdout.split() == ["6.0", "0"]


def test_the_key_covers_every_source_file(copy, tmp_path):
    cache = tmp_path / "cache"
    keys = {run(KEY, cache, copy).stdout}
    assert keys == {run(KEY, cache, copy).stdout}
    for name in ("gaussian_sums.py", "__init__.py", "callee.py"):
        path = copy / "programs" / "cpu" / name
        path.write_text(path.read_text() + "\n# changed\n")
        keys.add(run(KEY, cache, copy).stdout)
    (copy / "programs" / "cpu" / "more.py").write_text("")
    keys.add(run(KEY, cache, copy).stdout)
    assert len(keys) == 5
    assert all(len(key.strip()) == 24 for key in keys)


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert compiled.cache_folder() == tmp_path / "numba" / "regard" / compiled.source_key()
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    assert compiled.cache_folder() == tmp_path / "xdg" / "regard" / compiled.source_key()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert compiled.cache_folder() == tmp_path / ".cache" / "regard" / compiled.source_key()


def test_an_unwritable_cache_folder_still_works(copy, tmp_path):
    """A file stands where the folder should be, which stops even root."""
    (tmp_path / "file").write_text("")
    for _ in range(2):
        done = run(CALL, tmp_path / "file", copy)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["4.0", "2"]
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: bytes(len(content)),
        lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
    ],
    ids=["empty", "cut", "zeroed", "one bit"],
)
def test_a_damaged_cache_file_is_compiled_again_and_replaced(copy, tmp_path, damage):
    cache = tmp_path / "cache"
    run(CALL, cache, copy)
    kept = [path for path in cache.rglob("*") if path.is_file()]
    assert kept
    for path in kept:
        path.write_bytes(damage(path.read_bytes()))
    assert [run(CALL, cache, copy).stdout.split() for _ in range(2)] == [["4.0", "2"], ["4.0", "0"]]


FULL_DISK = """
import errno, pathlib
def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")
pathlib.Path.write_bytes = full
"""


def test_a_full_disk_does_not_stop_the_computation(copy, tmp_path):
    cache = tmp_path / "cache"
    for _ in range(2):
        done = run(FULL_DISK + CALL, cache, copy)
        assert done.stdout.split() == ["4.0", "2"], done.stderr
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_programs_saved_at_the_same_time_keep_apart(tmp_path):
    """Two processes that start from an empty cache each save a program of their own, then read both."""
    first, second = (compiled._ProgramFiles(tmp_path, "module.function") for _ in range(2))
    first.save(("float32",), "single")
    second.save(("float64",), "double")
    for files in (first, second):
        assert (files.load(("float32",)), files.load(("float64",)), files.load(())) == ("single", "double", None)


# ---- conventions

POOL = """
import numpy as np
from regard import pool
from regard.scores import Gaussian
x = np.linspace(0, 1, 40)
first, second = (pool(x, x, x, Gaussian(), engine="tiled").output for _ in range(2))
assert np.array_equal(first, second)
assert np.allclose(first, pool(x, x, x, Gaussian(), engine="reference").output)
"""


def test_what_is_written_to_a_pipe_does_not_depend_on_the_cache(tmp_path):
    for done in (run(POOL, tmp_path), run(POOL, tmp_path)):
        assert done.returncode == 0, done.stderr
        assert (done.stdout, done.stderr) == ("", "")


def test_on_a_terminal_the_first_call_says_why_it_waits(copy, tmp_path):
    pty = pytest.importorskip("pty", reason="needs a pseudo-terminal")
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(copy.parent)}
    shown = []
    for _ in range(2):
        ours, theirs = pty.openpty()
        done = subprocess.run([sys.executable, "-c", CALL], env=environment, stderr=theirs, timeout=300)
        os.close(theirs)
        assert done.returncode == 0
        with os.fdopen(ours, "rb") as terminal:
            shown.append(_everything(terminal))
    assert shown == ["regard: compiling programs for this machine; later calls and runs reuse them\r\n", ""]


def _everything(terminal) -> str:
    """What was written to a pseudo-terminal whose other side is closed; on Linux its end is an error."""
    text = b""
    try:
        while part := terminal.read1():
            text += part
    except OSError:
        pass
    return text.decode()


LONG = """
import signal
import numpy as np
from regard import pool
from regard.scores import Gaussian
# A shell starts work in the background deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
x = np.linspace(0, 1, 2_000_000, dtype=np.float32)
pool(x[:300], x[:300], x[:300], Gaussian(), engine="tiled")
print("ready", flush=True)
pool(x, x, x, Gaussian(), engine="tiled")
print("done", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_long_work_stops_on_ctrl_c():
    """Two million queries over two million keys take minutes; an interrupt ends them between jobs."""
    with subprocess.Popen(
        [sys.executable, "-c", LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as work:
        assert work.stdout is not None
        assert work.stdout.readline().strip() == "ready"
        time.sleep(0.3)
        work.send_signal(signal.SIGINT)
        stdout, stderr = work.communicate(timeout=120)
    assert "done" not in stdout
    assert "KeyboardInterrupt" in stderr
    assert work.returncode != 0


TORCH = "import torch; m = torch.nn.Linear(64, 64); (m(torch.ones(64, 64)) ** 2).sum().backward()"
FINUFFT = (
    "import finufft; x = np.linspace(-3, 3, 1000); assert finufft.nufft1d1(x, x + 0j, 32, eps=1e-6).shape == (32,)"
)
NUMBA = "import regard; y = np.linspace(0, 1, 64); regard.pool(y, y, y, regard.scores.Gaussian(), engine='tiled')"
PARALLEL = "import numba; f = numba.njit(parallel=True)(lambda a: a.sum()); assert f(np.ones(1000)) == 1000.0"


@pytest.mark.parametrize(
    "order", [[NUMBA, TORCH, FINUFFT], [FINUFFT, TORCH, PARALLEL, NUMBA]], ids=["numba first", "numba last"]
)
def test_numba_torch_and_finufft_in_one_process(order, tmp_path):
    """Each brings its own OpenMP; the notes needed KMP_DUPLICATE_LIB_OK for that."""
    pytest.importorskip("torch", reason="torch comes with the extra 'nn'")
    code = "import numpy as np\n" + "\n".join([*order, *order])
    home = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    done = run(code + "\nprint('fine')", Path(home), OMP_NUM_THREADS="2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["fine"]
