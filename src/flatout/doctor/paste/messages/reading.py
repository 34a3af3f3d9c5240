"""Messages and reports that people paste, recognised by what they mean."""

from __future__ import annotations

from flatout.doctor.paste.clean import Text
from flatout.doctor.paste.draft import Draft
from flatout.doctor.paste.messages import details, installing, memory, numbers, program, speed, starting
from flatout.doctor.paste.messages.sentence import Sentence

SENTENCES: tuple[Sentence, ...] = (
    *starting.SENTENCES,
    *installing.SENTENCES,
    *program.SENTENCES,
    *memory.SENTENCES,
    *speed.SENTENCES,
)


def read(text: Text, draft: Draft) -> None:
    numbers.read(text, draft)
    for sentence in SENTENCES:
        if sentence.said_in(text.said if sentence.deniable else text.lower):
            draft.symptom(sentence.code)
    details.read(text, draft)
