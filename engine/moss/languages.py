"""Names of languages as MOSS prompts write them. It does not know which of them a checkpoint speaks well."""

from __future__ import annotations

import re

_BY_CODE = {
    "ar": "Arabic",
    "bg": "Bulgarian",
    "ca": "Catalan",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "et": "Estonian",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "he": "Hebrew",
    "hi": "Hindi",
    "hr": "Croatian",
    "hu": "Hungarian",
    "id": "Indonesian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "lt": "Lithuanian",
    "lv": "Latvian",
    "ms": "Malay",
    "nl": "Dutch",
    "no": "Norwegian",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sk": "Slovak",
    "sl": "Slovenian",
    "sv": "Swedish",
    "th": "Thai",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "vi": "Vietnamese",
    "yue": "Cantonese",
    "zh": "Chinese",
}
_BY_NAME = {name.casefold(): name for name in _BY_CODE.values()}
_LONGEST_CODE = 3


def language_name(language: str | None) -> str | None:
    """The full English name of a language given by name ("german") or ISO 639 code ("de", "de-AT"); None if not given.

    A name that is not in the table is passed on as it is.

    Raises:
        ValueError: a code that is not in the table.
    """
    if language is None or not language.strip():
        return None
    given = language.strip()
    code = re.split("[-_]", given.casefold())[0]
    name = _BY_NAME.get(given.casefold()) or _BY_CODE.get(code)
    if name is None and len(code) <= _LONGEST_CODE:
        raise ValueError(
            f"language: {language!r} is no known code; give the full English name, or one of {', '.join(_BY_CODE)}"
        )
    return name or given
