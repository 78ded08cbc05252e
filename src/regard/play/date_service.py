"""Translates dates for the page with a small model, which is learned on first use and saved in the user's cache folder.

Learning takes about a minute and has a thread of its own, so that it does not hold up other jobs. Pages that ask
meanwhile are sent its progress, and ask again.
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

# The longest date that the model is trained on has 36 characters.
MAX_DATE_CHARACTERS = 40
MAX_SECONDS = 30.0
# How long the end of the program waits for the current step of the learning.
SHUTDOWN_SECONDS = 5.0
WEIGHT_DIGITS = 4
# A model that is learned in another way gets another file name.
MODEL_FILE = "dates-1.regard"

Watch = Callable[[Any], None]


class DateTranslator(Protocol):
    """The methods of a ``Translator`` that are used here."""

    def translate(self, texts: list[str]) -> list[Any]: ...

    def save(self, path: Path, *, force: bool) -> None: ...


class LearningStopped(Exception):
    """The playground closes while the model learns."""


def cache_path() -> Path:
    """Where the model is saved between two runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard" / MODEL_FILE


def learn_model(watch: Watch) -> DateTranslator:
    """Learn the model; ``watch`` is called with its progress."""
    from regard.seq2seq.date_model import learn_dates

    return learn_dates(watch=watch).translator


def load_model(path: Path) -> DateTranslator | None:
    """The model that an earlier run has saved; None if there is none, or if it cannot be read."""
    from regard.seq2seq.translator import Translator, TranslatorError

    try:
        return Translator.load(path)
    except (OSError, TranslatorError):
        return None


class DateService:
    """The date model of this run.

    Parameters
    ----------
    path : where it is saved, by default in the user's cache folder.
    learn : learns the model if none is saved; it is given ``watch``, which it calls with its progress.
    """

    def __init__(self, path: Path | None = None, learn: Callable[[Watch], DateTranslator] = learn_model) -> None:
        self._path, self._learn = path, learn
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._model: DateTranslator | None = None
        self._failure: Refused | None = None
        self._done, self._closed = 0.0, False

    def answer(self, text: str) -> dict[str, Any]:
        """A translation with its weights, or the progress of the learning, which the first call starts."""
        with self._lock:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            if self._model is None:
                self._start_learning()
                return {"did": "learning", "done": self._done}
        translation = self._model.translate([text])[0]
        return {
            "did": "translated",
            "text": translation.text,
            "source": list(translation.source_tokens),
            "target": list(translation.tokens),
            "weights": [[round(float(weight), WEIGHT_DIGITS) for weight in row] for row in translation.weights],
        }

    def close(self) -> None:
        """End the learning after its current step."""
        self._closed = True
        if self._thread is not None:
            self._thread.join(SHUTDOWN_SECONDS)

    def _start_learning(self) -> None:
        if self._thread is None and not self._closed:
            self._done = 0.0
            self._thread = threading.Thread(target=self._prepare, name="regard play: dates", daemon=True)
            self._thread.start()

    def _prepare(self) -> None:
        failure: Refused | None = None
        try:
            self._model = self._loaded_or_learned()
        except LearningStopped:
            pass
        except ModuleNotFoundError as reason:
            failure = Refused(
                409, f"translating dates needs {reason.name}: run pip install 'regard[nn]' and start regard play again"
            )
        except Exception as reason:
            failure = Refused(500, f"a bug in regard: {type(reason).__name__}")
        with self._lock:
            self._failure, self._thread = failure, None

    def _loaded_or_learned(self) -> DateTranslator:
        path = self._path or cache_path()
        model = load_model(path)
        if model is None:
            model = self._learn(self._watch)
            # If the folder cannot be written to, the next run learns again; this one goes on.
            with suppress(OSError, ValueError):
                path.parent.mkdir(parents=True, exist_ok=True)
                model.save(path, force=True)
        return model

    def _watch(self, progress: Any) -> None:
        if self._closed:
            raise LearningStopped
        self._done = max(self._done, progress.step / progress.steps)


def requested_date(given: Fields) -> str:
    """The text that a page wants translated."""
    text = given.text("text").strip()
    if not 0 < len(text) <= MAX_DATE_CHARACTERS:
        raise Refused(422, f"text must be a date of 1 to {MAX_DATE_CHARACTERS} characters")
    return text
