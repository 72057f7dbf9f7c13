"""Reads protobuf's text format into fields, each with the line that it stands on.

No schema: what a field may be called and hold is for ``reverb_config``. The format as protobuf's
own readers take it: comments with ``#``, ``field: value``, messages in braces or angles with or
without a colon, lists in brackets, commas or semicolons behind fields, strings side by side as one,
integers in base 8, 10 and 16, ``inf`` and ``nan``. Differs: names of extensions and of ``Any``
types are refused.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from reverie.errors import InvalidArgumentError

DEPTH_MAX = 100  # as protobuf's readers
TEXT_MAX = 1 << 20
_SHOWN = 40
_NUMBER_MAX = 400  # characters: no double needs more to be written out


class Word(NamedTuple):
    """A name as value: of an enumeration, a bool, ``inf``."""

    text: str

    def __str__(self) -> str:
        return self.text


class Message(NamedTuple):
    """The fields of a message, in the order in which they stand."""

    fields: tuple[Field, ...]


class Field(NamedTuple):
    """One field; an element of a list is a field of its own."""

    name: str
    value: int | float | str | Word | Message
    line: int
    is_element: bool = False  # of a list


_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r\f\v]+|\#[^\n]*)
    | (?P<newline>\n)
    | (?P<string>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
    | (?P<number>(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?))
    | (?P<word>[A-Za-z_][A-Za-z_0-9]*)
    | (?P<mark>[-:{}<>\[\],;])
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:([abfnrtv\\'\"?])|([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.?))")
_ESCAPED = dict(zip("abfnrtv\\'\"?", "\a\b\f\n\r\t\v\\'\"?", strict=True))
_CLOSED_BY = {"{": "}", "<": ">"}


class _Token(NamedTuple):
    kind: str  # a group of _TOKEN, or "end"
    text: str
    line: int


def read(text: str, source: str) -> Message:
    """The message that ``text`` holds.

    Args:
        text: at most a MiB.
        source: the file's name, for messages.

    Raises:
        InvalidArgumentError: not the text format; the message says where.
    """
    if len(text) > TEXT_MAX:
        raise InvalidArgumentError(
            f"{source}: {len(text):,} characters; the bound is {TEXT_MAX:,}: a configuration "
            "holds no data"
        )
    return _Reader(text, source).read()


class _Reader:
    def __init__(self, text: str, source: str) -> None:
        self._source = source
        self._tokens = self._cut(text)
        self._next = 0

    def _cut(self, text: str) -> list[_Token]:
        tokens = []
        line = 1
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                at = text[position]
                if at in "\"'":
                    self._fail(line, f"a string that begins with {at} has no end on its line")
                self._fail(line, f"{at!r} means nothing here")
            kind = match.lastgroup or ""
            position = match.end()
            if kind == "newline":
                line += 1
            elif kind != "space":
                follows = text[position : position + 1]
                if kind == "number" and re.match(r"[\w.]", follows):
                    shown = text[match.start() : match.start() + _SHOWN].split()[0]
                    self._fail(line, f"{shown!r} is not a number")
                tokens.append(_Token(kind, match.group(), line))
        tokens.append(_Token("end", "", line))
        return tokens

    def read(self) -> Message:
        fields = self._fields(depth=0)
        if self._peek().kind != "end":
            self._fail(self._peek().line, f"{_shown(self._peek())} closes nothing")
        return fields

    def _fields(self, *, depth: int) -> Message:
        """Fields up to a mark that closes a message, which is left, or the end."""
        fields: list[Field] = []
        while True:
            token = self._peek()
            if token.kind == "end" or (token.kind == "mark" and token.text in "}>"):
                return Message(tuple(fields))
            name = self._take()
            if name.kind != "word":
                self._fail(name.line, f"{_shown(name)} is where a field must begin")
            has_colon = self._accept(":")
            if self._accept("["):
                while not self._accept("]"):
                    element = self._value(name, has_colon=has_colon, depth=depth)
                    fields.append(element._replace(is_element=True))
                    if not self._accept(",") and self._peek().text != "]":
                        self._fail(
                            self._peek().line,
                            f"{_shown(self._peek())} in the list of '{name.text}'; a ',' or a ']' "
                            "must follow an element",
                        )
            else:
                fields.append(self._value(name, has_colon=has_colon, depth=depth))
            if not self._accept(","):
                self._accept(";")

    def _value(self, name: _Token, *, has_colon: bool, depth: int) -> Field:
        token = self._take()
        if token.kind == "mark" and token.text in _CLOSED_BY:
            if depth == DEPTH_MAX:
                self._fail(token.line, f"'{name.text}' is nested deeper than {DEPTH_MAX} messages")
            closing = _CLOSED_BY[token.text]
            message = self._fields(depth=depth + 1)
            if not self._accept(closing):
                self._fail(
                    self._peek().line,
                    f"{_shown(self._peek())} where '{name.text}' of line {name.line} must be "
                    f"closed by '{closing}'",
                )
            return Field(name.text, message, name.line)
        if not has_colon:
            self._fail(
                token.line, f"{_shown(token)} after '{name.text}'; a ':' or a '{{' must follow"
            )
        return Field(name.text, self._scalar(name, token), name.line)

    def _scalar(self, name: _Token, token: _Token) -> int | float | str | Word:
        sign = 1
        if token.kind == "mark" and token.text == "-":
            sign = -1
            token = self._take()
            if token.kind == "string":
                self._fail(token.line, f"'{name.text}' is a negative string")
        if token.kind == "number":
            return sign * self._number(name, token)
        if token.kind == "string":
            texts = [self._unescaped(token)]
            while self._peek().kind == "string":
                texts.append(self._unescaped(self._take()))
            return "".join(texts)
        lower = token.text.lower()
        if token.kind == "word" and lower in ("inf", "infinity", "inff", "infinityf"):
            return sign * float("inf")
        if token.kind == "word" and lower in ("nan", "nanf"):
            return float("nan")
        if token.kind != "word" or sign == -1:
            self._fail(token.line, f"{_shown(token)} is not a value for '{name.text}'")
        return Word(token.text)

    def _number(self, name: _Token, token: _Token) -> int | float:
        text = token.text
        if len(text) > _NUMBER_MAX:
            self._fail(
                token.line,
                f"'{name.text}' is a number of {len(text)} characters; the bound is {_NUMBER_MAX}",
            )
        if text[:2] in ("0x", "0X"):
            return int(text, 16)
        if text.isdigit():
            if text[0] != "0":
                return int(text)
            if all(digit < "8" for digit in text):
                return int(text, 8)
            self._fail(token.line, f"'{name.text}' is {text}; 8 and 9 are not octal digits")
        return float(text.rstrip("fF"))

    def _unescaped(self, token: _Token) -> str:
        def replaced(match: re.Match[str]) -> str:
            plain, octal, digits, wrong = match.groups()
            if plain:
                return _ESCAPED[plain]
            if wrong is not None:
                self._fail(token.line, f"a string holds the unknown escape '\\{wrong}'")
            code = int(octal, 8) if octal else int(digits, 16)
            if code >= 0x80:
                self._fail(
                    token.line, f"a string holds the byte {code}; write it as the character it is"
                )
            return chr(code)

        return _ESCAPE.sub(replaced, token.text[1:-1])

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        if token.kind != "end":
            self._next += 1
        return token

    def _accept(self, mark: str) -> bool:
        token = self._peek()
        if token.kind != "mark" or token.text != mark:
            return False
        self._next += 1
        return True

    def _fail(self, line: int, what: str) -> NoReturn:
        raise InvalidArgumentError(f"{self._source}:{line}: {what}")


def _shown(token: _Token) -> str:
    if token.kind == "end":
        return "the end of the text"
    return repr(token.text if len(token.text) <= _SHOWN else token.text[:_SHOWN] + "...")
