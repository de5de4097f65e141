"""From a failure to the id of the group that it belongs to."""

import hashlib
import re

_CHANGING = "…"
_LOOKED_AT = 1_000
"""Characters of a message that count."""

_KEPT = 300
"""Characters of a message that a group has."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_LENGTH = 12

# An apostrophe within a word, as in "can't", opens no quotation.
_QUOTED = re.compile(
    r"""(?<!\w)'[^'\n]*'(?!\w)|"[^"\n]*"|`[^`\n]*`|“[^”\n]*”|«[^»\n]*»""",
)
_LEFT_OPEN = re.compile(r"""((?<!\w)'|["`“«])[^'"`”»\n]*\Z""")
# Numbers, hex, UUIDs, ULIDs, tokens, instants: any run of word characters with a digit, and the
# signs that hold such runs together. Hex without a digit is known by its length.
_WITH_DIGIT = re.compile(r"(?<!\w)[+-]?(?:[^\W\d]*\d[\w%]*)(?:[-:.,+/@][\w%]*\d[\w%]*)*")
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_HEX = re.compile(r"\b[0-9a-fA-F]{8,}\b")
_RUN = re.compile(rf"{_CHANGING}(?:[\s,;:.-]*{_CHANGING})+")


def plain_message(message: str) -> str:
    """Return a message without numbers, ids, hex and quoted parts: each of them becomes "…".

    Lines become one, and lists of such parts become one "…", so that their length does not count.
    """
    looked_at = message[:_LOOKED_AT]
    text = _QUOTED.sub(_CHANGING, looked_at)
    if len(message) > _LOOKED_AT:
        text = _LEFT_OPEN.sub(_CHANGING, text)
    for changing in (_UUID, _WITH_DIGIT, _HEX):
        text = changing.sub(_CHANGING, text)
    return _RUN.sub(_CHANGING, " ".join(text.split()))[:_KEPT]


def error_group(kind: str, error_type: str, message: str) -> str:
    """Return the id of the group of a failure: 12 letters and digits.

    The id depends on the kind, the type and :func:`plain_message` alone, so each pod, release and
    store gives the same failure the same id.
    """
    parts = (kind, error_type, plain_message(message))
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).digest()
    number = int.from_bytes(digest[:8], "big")
    return "".join(_LETTERS[number >> 5 * place & 31] for place in range(_LENGTH))
