"""The tour in both languages, run once for all the tests that read it."""

from __future__ import annotations

import logging
from functools import cache

import pytest

from regard.data import notes
from regard.plot.printing import saved
from regard.seq2seq import date_model
from regard.tour import guide, run
from regard.tour.stations import date_translation, density, growth, reinforcement
from support.browser import launched
from support.figure_texts import overlapping_texts


@pytest.fixture(scope="session", autouse=True)
def learned_once():
    """The last station learns from few dates and strings, and what does not depend on the language is computed once."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PAIRS": 1500, "VALID": 100, "EPOCHS": 2}.items():
            patch.setattr(date_model, name, value)
        for name, value in {"STRINGS": 600, "TEST_STRINGS": 150, "REVERSAL_EPOCHS": 2}.items():
            patch.setattr(date_translation, name, value)
        for module, name in (
            (date_model, "learn_dates"),
            (date_translation, "reversals"),
            (density, "uneven_errors"),
            (growth, "learned_by_size"),
            (reinforcement, "measure"),
            (reinforcement, "train"),
        ):
            patch.setattr(module, name, cache(getattr(module, name)))
        yield


@pytest.fixture(scope="session")
def logged():
    """What matplotlib logs while the tours run."""
    return []


@pytest.fixture(scope="session")
def overlaps():
    """Pairs of texts that cover each other in figures, found while the tours run."""
    return []


@pytest.fixture(scope="session")
def chromium():
    with launched() as browser:
        yield browser


@pytest.fixture(scope="session")
def tours(tmp_path_factory, logged, overlaps):
    """Tours in both languages. A letter missing from a figure's font would be a warning, hence an error."""

    def inspected(figure, kind):
        content = saved(figure, kind)
        if kind == "png":  # the second file: what is drawn after it changes neither
            overlaps.extend(overlapping_texts(figure))
        return content

    listener = logging.Handler(logging.WARNING)
    listener.emit = lambda record: logged.append(record.getMessage())
    logger = logging.getLogger("matplotlib")

    class Walked(dict):
        """Each tour runs when it is first asked for: both at once would be one test of minutes."""

        def __missing__(self, lang):
            logger.addHandler(listener)
            try:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(guide, "saved", inspected)
                    self[lang] = run(tmp_path_factory.mktemp("tour") / lang, lang=lang)
            finally:
                logger.removeHandler(listener)
            return self[lang]

    return Walked()


@pytest.fixture(scope="session")
def data():
    return notes(seed=0)
