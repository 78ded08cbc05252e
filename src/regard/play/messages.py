"""What pages send, checked field by field; what is wrong is told without repeating it."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from regard.play.security import Refused

# A conversation's longest message: a thousand points at full precision take 40 kB.
MOST_CHARACTERS = 200_000
MOST_NAME = 400
# Numbers beyond these have no place on a page, and their squares would leave float64.
LARGEST = 1e9


def parsed(text: str) -> dict[str, Any]:
    """A message as a dictionary: strict JSON, not too long, not too deep."""
    if len(text) > MOST_CHARACTERS:
        raise Refused(413, f"a message may hold at most {MOST_CHARACTERS:,} characters")
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise Refused(400, "the message is nested too deeply") from None
    except ValueError:
        raise Refused(400, "the message is not JSON") from None
    if not isinstance(found, dict):
        raise Refused(422, "the message must be a JSON object")
    return found


def _no_constant(_: str) -> NoReturn:
    raise Refused(422, "numbers must be finite")


class Fields:
    """The fields of one message; every one asked for is checked, and no other may be there."""

    def __init__(self, message: dict[str, Any], known: Collection[str]) -> None:
        if not set(message) <= set(known):
            raise Refused(422, f"the message has fields other than {', '.join(sorted(known))}")
        self._message = message

    def choice(self, name: str, accepted: Collection[str]) -> str:
        given = self._given(name)
        if not isinstance(given, str) or given not in accepted:
            raise Refused(422, f"{name} must be one of {', '.join(sorted(accepted))}")
        return given

    def whole(self, name: str, low: int, high: int) -> int:
        given = self._given(name)
        if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
            raise Refused(422, f"{name} must be a whole number from {low} to {high:,}")
        return given

    def number(self, name: str, low: float, high: float) -> float:
        return _number(self._given(name), name, low, high)

    def numbers(self, name: str, least: int, most: int) -> list[float]:
        given = self._list(name, least, most)
        return [_number(each, name, -LARGEST, LARGEST) for each in given]

    def text(self, name: str) -> str:
        return _text(self._given(name), name)

    def texts(self, name: str, least: int, most: int) -> list[str]:
        given = [_text(each, name) for each in self._list(name, least, most)]
        if len(set(given)) < len(given):
            raise Refused(422, f"{name} must not repeat itself")
        return given

    def _list(self, name: str, least: int, most: int) -> Sequence[Any]:
        given = self._given(name)
        if not isinstance(given, list) or not least <= len(given) <= most:
            raise Refused(422, f"{name} must be a list of {least} to {most:,} entries")
        return given

    def _given(self, name: str) -> Any:
        if name not in self._message:
            raise Refused(422, f"the message lacks {name}")
        return self._message[name]


def _number(given: Any, name: str, low: float, high: float) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not low <= given <= high:
        raise Refused(422, f"{name} must hold finite numbers from {low:g} to {high:g}")
    return float(given)


def _text(given: Any, name: str) -> str:
    if not isinstance(given, str) or not 0 < len(given) <= MOST_NAME:
        raise Refused(422, f"{name} must be text of 1 to {MOST_NAME} characters")
    return given
