"""Sentences with numbers, dates, prices, names and small talk, drawn from templates.

Dictionary examples and quotations hardly ever hold a clock time, a price or a surname; a voice that never heard one
stumbles over them. It does not know grammar: each template is written so that any filling reads well.
"""

import json
import re
from pathlib import Path
from random import Random

_LISTS = json.loads((Path(__file__).parent / "templates.json").read_text(encoding="utf-8"))
SHORT_UTTERANCES: list[str] = _LISTS["short_utterances"]


def _ordinal(value: int) -> str:
    suffix = "th" if 10 <= value % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
    return f"{value}{suffix}"


def _clock(random: Random) -> str:
    hour, minute = random.randint(1, 12), random.choice([0, 5, 10, 15, 20, 25, 30, 40, 45, 50, 55])
    plain = f"{hour} o'clock" if minute == 0 else f"{hour}:{minute:02d}"
    return plain if random.random() < 0.5 else f"{hour}:{minute:02d} {random.choice(['am', 'pm'])}"


def _price(random: Random) -> str:
    if random.random() < 0.4:
        return f"${random.randint(2, 900)}"
    return f"{random.choice('$$£€')}{random.randint(1, 99)}.{random.choice([25, 49, 50, 75, 95, 99])}"


def _date(random: Random) -> str:
    day, month = random.randint(1, 28), random.choice(_LISTS["months"])
    short = f"{month} {_ordinal(day)}"
    return short if random.random() < 0.6 else f"{month} {day}, {random.randint(1900, 2030)}"


def numbers_and_names(random: Random) -> str:
    """One sentence with a number, a date, a time, a price, an abbreviation or a name."""
    first, last = random.choice(_LISTS["first_names"]), random.choice(_LISTS["last_names"])
    template: str = random.choice(_LISTS["numbers_and_names"])
    return template.format(
        time=_clock(random),
        price=_price(random),
        date=_date(random),
        day=random.choice(_LISTS["days"]),
        year=random.randint(1750, 2030),
        year2=random.randint(1990, 2030),
        first=first,
        first2=random.choice(_LISTS["first_names"]),
        last=last,
        name=f"{first} {last}",
        place=random.choice(_LISTS["places"]),
        title=random.choice(_LISTS["titles"]),
        short=random.choice(_LISTS["short_forms"]),
        number=random.choice([random.randint(3, 99), random.randint(100, 999), random.randint(1000, 25000)]),
        small=random.randint(2, 40),
        small2=random.randint(0, 20),
        percent=f"{random.randint(1, 99)}%",
        ordinal=_ordinal(random.randint(1, 40)),
        decimal=f"{random.randint(0, 99)}.{random.randint(1, 9)}",
        digits=f"555-{random.randint(1000, 9999)}",
    )


def everyday(random: Random) -> str:
    """One plain sentence of daily life from the word lists."""
    person, did = random.choice(_LISTS["people"]), random.choice(_LISTS["deeds"])
    sentence = random.choice(_LISTS["everyday"]).format(
        Person=person[0].upper() + person[1:],
        person=person,
        person2=random.choice(_LISTS["people"]),
        did=did,
        done=_LISTS["participles"].get(did, did),
        thing=random.choice(_LISTS["things"]),
        when=random.choice(_LISTS["circumstances"]),
    )
    return re.sub(r"\s+", " ", sentence)
