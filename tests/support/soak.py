"""Whether the long tests run their full counts, as ``make soak`` does, or a tenth of them."""

from __future__ import annotations

import os

FULL = bool(os.environ.get("REGARD_SOAK"))
