"""Build the wheel, install it into empty environments, and run README's first example there.

``python tools/try_wheel.py`` does so for every Python of ``PYTHONS`` that runs here, or for those given as arguments,
without extras.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
QUIET = ("--quiet", "--disable-pip-version-check")
# What the core must not bring.
FOREIGN = ("matplotlib", "torch", "typer", "dask", "onnx")


def example(readme: str) -> str:
    """README's first block of Python.

    >>> example("a\\n```python\\nprint(1)\\n```\\n```python\\nprint(2)\\n```")
    'print(1)\\n'
    """
    found = re.search(r"```python\n(.*?)```", readme, re.S)
    if found is None:
        raise ValueError("README.md has no Python block")
    return found[1]


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def works(python: str) -> bool:
    """Whether this Python runs: a name on the path may belong to a version manager that has switched it off."""
    return bool(shutil.which(python)) and not subprocess.run([python, "-c", ""], capture_output=True).returncode


def build(folder: Path) -> Path:
    """The wheel of this tree."""
    run(sys.executable, "-m", "pip", "wheel", *QUIET, "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("regard-*.whl")
    return wheel


def try_on(python: str, wheel: Path, folder: Path) -> str:
    """Install the wheel into an empty environment of this Python, and run the example; one line about it."""
    place = Path(tempfile.mkdtemp(dir=folder))
    run(python, "-m", "venv", place, cwd=folder)
    inside = place / "bin" / "python"
    run(inside, "-m", "pip", "install", *QUIET, "-c", ROOT / "constraints.txt", wheel, cwd=folder)
    for name in FOREIGN:
        missing = f"import importlib.util as u, sys; sys.exit(u.find_spec({name!r}) is not None)"
        run(inside, "-c", missing, cwd=folder)
    (folder / "example.py").write_text(example((ROOT / "README.md").read_text(encoding="utf-8")), encoding="utf-8")
    shown = run(inside, "-W", "error", "example.py", cwd=folder)
    version = run(inside, "-c", "import regard, sys; print(sys.version.split()[0], regard.__version__)", cwd=folder)
    return f"Python {version.strip().replace(' ', ', regard ')}: {len(shown.splitlines())} lines printed by the example"


def main() -> None:
    asked = sys.argv[1:] or PYTHONS
    found = [python for python in asked if works(python)]
    print(f"not here: {', '.join(sorted(set(asked) - set(found))) or 'none'}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder)
        print(f"{wheel.name}: {wheel.stat().st_size:,} bytes")
        for python in found:
            print(try_on(python, wheel, folder))


if __name__ == "__main__":
    main()
