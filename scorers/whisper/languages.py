"""Languages of Whisper by code and by English name. Knows no model."""

from __future__ import annotations

_NAMES = """
af afrikaans am amharic ar arabic as assamese az azerbaijani ba bashkir be belarusian bg bulgarian bn bengali
bo tibetan br breton bs bosnian ca catalan cs czech cy welsh da danish de german el greek en english es spanish
et estonian eu basque fa persian fi finnish fo faroese fr french gl galician gu gujarati ha hausa haw hawaiian
he hebrew hi hindi hr croatian ht haitian hu hungarian hy armenian id indonesian is icelandic it italian ja japanese
jw javanese ka georgian kk kazakh km khmer kn kannada ko korean la latin lb luxembourgish ln lingala lo lao
lt lithuanian lv latvian mg malagasy mi maori mk macedonian ml malayalam mn mongolian mr marathi ms malay mt maltese
my burmese ne nepali nl dutch nn nynorsk no norwegian oc occitan pa punjabi pl polish ps pashto pt portuguese
ro romanian ru russian sa sanskrit sd sindhi si sinhala sk slovak sl slovenian sn shona so somali sq albanian
sr serbian su sundanese sv swedish sw swahili ta tamil te telugu tg tajik th thai tk turkmen tl tagalog tr turkish
tt tatar uk ukrainian ur urdu uz uzbek vi vietnamese yi yiddish yo yoruba zh chinese yue cantonese
"""

CODES = dict(zip(_NAMES.split()[1::2], _NAMES.split()[::2], strict=True))
"""Code by English name in lower case."""


def code_of(language: str) -> str:
    """Whisper's code of a language, by English name or code; `ValueError` lists the names."""
    wanted = language.strip().lower() if isinstance(language, str) else ""
    code = CODES.get(wanted, wanted)
    if code not in CODES.values():
        raise ValueError(f"language: {language!r} is not known to Whisper; allowed are {', '.join(sorted(CODES))}")
    return code


def name_of(code: str) -> str:
    """English name of a code, in lower case."""
    return next(name for name, one in CODES.items() if one == code)
