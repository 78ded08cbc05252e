"""Dates for the page: a small translator, kept in the user's cache folder, learned there on its first use.

Learning takes about a minute and has a thread of its own, so that nobody's job waits for it. Pages that ask meanwhile
are told how far it has come, and ask again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from regard.play.messages import Fields
from regard.play.security import Refused

# Characters of a date; the longest that the model has seen has 36.
LONGEST = 40
SECONDS = 30.0
# The longest that the end of the program waits for a step of the learning to end.
GOODBYE = 5.0
DIGITS = 4
# Another recipe is another file.
FILE = "dates-1.regard"

Watch = Callable[[Any], None]


class Translates(Protocol):
    """What is asked of the model."""

    def translate(self, texts: list[str]) -> list[Any]: ...

    def save(self, path: Path, *, force: bool) -> None: ...


class Stopped(Exception):
    """The playground closes while the model learns."""


def cached() -> Path:
    """Where the model is kept between two runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard" / FILE


def learned(watch: Watch) -> Translates:
    """The model, learned anew."""
    from regard.seq2seq.date_model import learn_dates

    return learn_dates(watch=watch).translator


def loaded(path: Path) -> Translates | None:
    """The model of an earlier run; None where there is none, or none that can be read."""
    from regard.seq2seq.translator import Translator, TranslatorError

    try:
        return Translator.load(path)
    except (OSError, TranslatorError):
        return None


class Dates:
    """The date model of this run.

    Parameters
    ----------
    path : where it is kept, by default in the user's cache folder.
    learn : makes it where there is none; told ``watch``, which is to be called with its progress.
    """

    def __init__(self, path: Path | None = None, learn: Callable[[Watch], Translates] = learned) -> None:
        self._path, self._learn = path, learn
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._model: Translates | None = None
        self._failure: Refused | None = None
        self._done, self._closed = 0.0, False

    def answer(self, text: str) -> dict[str, Any]:
        """A translation with its weights, or how far the learning has come; the first who asks sets it off."""
        with self._lock:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            if self._model is None:
                self._begin()
                return {"did": "learning", "done": self._done}
        told = self._model.translate([text])[0]
        return {
            "did": "translated",
            "text": told.text,
            "source": list(told.source_tokens),
            "target": list(told.tokens),
            "weights": [[round(float(weight), DIGITS) for weight in row] for row in told.weights],
        }

    def close(self) -> None:
        """Let the learning end with its next step."""
        self._closed = True
        if self._thread is not None:
            self._thread.join(GOODBYE)

    def _begin(self) -> None:
        if self._thread is None and not self._closed:
            self._done = 0.0
            self._thread = threading.Thread(target=self._prepare, name="regard play: dates", daemon=True)
            self._thread.start()

    def _prepare(self) -> None:
        failure: Refused | None = None
        try:
            self._model = self._found()
        except Stopped:
            pass
        except ModuleNotFoundError as reason:
            failure = Refused(409, f"translating needs {reason.name}; run pip install 'regard[nn]' and start again")
        except Exception as reason:
            failure = Refused(500, f"a bug in regard: {type(reason).__name__}")
        with self._lock:
            self._failure, self._thread = failure, None

    def _found(self) -> Translates:
        path = self._path or cached()
        model = loaded(path)
        if model is None:
            model = self._learn(self._watch)
            # A folder that cannot be written to costs the next run a minute, and this one nothing.
            with suppress(OSError, ValueError):
                path.parent.mkdir(parents=True, exist_ok=True)
                model.save(path, force=True)
        return model

    def _watch(self, progress: Any) -> None:
        if self._closed:
            raise Stopped
        self._done = max(self._done, progress.step / progress.steps)


def asked(given: Fields) -> str:
    """The text that a page wants translated."""
    text = given.text("text").strip()
    if not 0 < len(text) <= LONGEST:
        raise Refused(422, f"text must be a date of 1 to {LONGEST} characters")
    return text
