"""How a message is written down here: in lower case, a space for any white space, `~` for a few words between."""

from __future__ import annotations

import re

from flatout.base.records import Struct

GAP = r"[^\n;]{0,60}?"
# Before a report, in its own statement, these take it back.
_DENIED = re.compile(
    r"(?:\b(?:no|not|never|without|isn't|wasn't|aren't|don't|doesn't|didn't|no longer|rather than|instead of|fixed|solved"
    r"|rule[sd]? out)"
    r"(?: (?:a|an|any|the|see|have|seeing|due to|because of|caused by|problem with)){0,3}|没有|不是|并非|未出现|不存在) ?$"
)


class Sentence(Struct, frozen=True, kw_only=True):
    code: str
    patterns: tuple[re.Pattern[str], ...]
    words: tuple[str, ...]  # at least one of them is in the text, else nothing is looked for
    deniable: bool

    def said_in(self, lower: str) -> bool:
        if self.words and not any(word in lower for word in self.words):
            return False
        return any(self._found(pattern, lower) for pattern in self.patterns)

    def _found(self, pattern: re.Pattern[str], lower: str) -> bool:
        for match in pattern.finditer(lower):
            if not self.deniable:
                return True
            before = lower[max(0, match.start() - 40) : match.start()].rpartition("\n")[2]
            if not _DENIED.search(before):
                return True
        return False


def pattern(text: str) -> re.Pattern[str]:
    return re.compile(text.replace("~", GAP).replace(" ", r"\s"))


def message(code: str, *patterns: str, words: tuple[str, ...] = ()) -> Sentence:
    """What a program prints: it stands there or it does not."""
    return Sentence(code=code, patterns=tuple(map(pattern, patterns)), words=words, deniable=False)


def report(code: str, *patterns: str, words: tuple[str, ...] = ()) -> Sentence:
    """What a person says: may be denied in the same breath."""
    return Sentence(code=code, patterns=tuple(map(pattern, patterns)), words=words, deniable=True)
