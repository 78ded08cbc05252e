"""Messages from pages, checked field by field; errors never quote what was sent."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from regard.play.security import Refused

# Of one message: a thousand points at full precision take 40 kB.
MAX_CHARACTERS = 200_000
# Of one text, such as the name of a column.
MAX_TEXT_CHARACTERS = 400
# Larger numbers do not occur on a page; squares of these are far from overflow.
MAX_NUMBER = 1e9


def parsed(text: str) -> dict[str, Any]:
    """A message as a dictionary; it must be strict JSON, neither too long nor nested too deeply."""
    if len(text) > MAX_CHARACTERS:
        raise Refused(413, f"a message must have at most {MAX_CHARACTERS:,} characters")
    try:
        found = json.loads(text, parse_constant=_reject_constant)
    except RecursionError:
        raise Refused(400, "the message is nested too deeply") from None
    except ValueError:
        raise Refused(400, "the message is not valid JSON") from None
    if not isinstance(found, dict):
        raise Refused(422, "the message must be a JSON object")
    return found


def _reject_constant(_: str) -> NoReturn:
    raise Refused(422, "numbers must be finite")


class Fields:
    """The fields of one message, each checked when it is read; fields that are not ``known`` are refused."""

    def __init__(self, message: dict[str, Any], known: Collection[str]) -> None:
        if not set(message) <= set(known):
            raise Refused(422, f"the message has unknown fields; accepted are {', '.join(sorted(known))}")
        self._message = message

    def choice(self, name: str, accepted: Collection[str]) -> str:
        given = self._given(name)
        if not isinstance(given, str) or given not in accepted:
            raise Refused(422, f"{name} must be one of {', '.join(sorted(accepted))}")
        return given

    def whole(self, name: str, low: int, high: int) -> int:
        given = self._given(name)
        if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
            raise Refused(422, f"{name} must be an integer from {low} to {high:,}")
        return given

    def number(self, name: str, low: float, high: float) -> float:
        return _number(self._given(name), name, low, high)

    def numbers(self, name: str, least: int, most: int) -> list[float]:
        given = self._list(name, least, most)
        return [_number(each, name, -MAX_NUMBER, MAX_NUMBER) for each in given]

    def text(self, name: str) -> str:
        return _text(self._given(name), name)

    def texts(self, name: str, least: int, most: int) -> list[str]:
        given = [_text(each, name) for each in self._list(name, least, most)]
        if len(set(given)) < len(given):
            raise Refused(422, f"{name} must not contain duplicates")
        return given

    def _list(self, name: str, least: int, most: int) -> Sequence[Any]:
        given = self._given(name)
        if not isinstance(given, list) or not least <= len(given) <= most:
            raise Refused(422, f"{name} must be a list of {least} to {most:,} entries")
        return given

    def _given(self, name: str) -> Any:
        if name not in self._message:
            raise Refused(422, f"the message has no field {name}")
        return self._message[name]


def _number(given: Any, name: str, low: float, high: float) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not low <= given <= high:
        raise Refused(422, f"{name} must be finite and between {low:g} and {high:g}")
    return float(given)


def _text(given: Any, name: str) -> str:
    if not isinstance(given, str) or not 0 < len(given) <= MAX_TEXT_CHARACTERS:
        raise Refused(422, f"{name} must be text of 1 to {MAX_TEXT_CHARACTERS} characters")
    return given
