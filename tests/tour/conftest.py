"""The tour in both languages, walked once for all the tests that read it."""

from __future__ import annotations

import pytest

from regard.data import notes
from regard.text import LANGUAGES
from regard.tour import run


@pytest.fixture(scope="session")
def tours(tmp_path_factory):
    """Tours in both languages. A letter missing from a figure's font would be a warning, hence an error."""
    return {lang: run(tmp_path_factory.mktemp("tour") / lang, lang=lang) for lang in LANGUAGES}


@pytest.fixture(scope="session")
def data():
    return notes(seed=0)
