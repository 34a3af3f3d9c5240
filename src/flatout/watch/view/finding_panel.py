"""What bounds the training, and what the doctor finds wrong with it, in the words of its pages."""

from __future__ import annotations

from functools import cache

from flatout.doctor import page
from flatout.report.numbers import percent
from flatout.watch.view.rows import Piece, Rows, box, wrapped
from flatout.watch.view.run_panels import padded
from flatout.watch.view.scene import Scene

MOST = 3


@cache
def _sheet(code: str, language: str) -> page.Page:
    return page.read(code, language)


def findings(scene: Scene, width: int, most: int) -> Rows:
    """Nothing as long as nothing is known."""
    verdict, words, inner = scene.picture.verdict, scene.words, width - 4
    if verdict is None:
        return []
    rows: Rows = []
    key = f"bound-by.{verdict.bound_by}"
    if words.has(key):
        shares = {"input": 0.0, "copy": 0.0, "starved": 0.0, **verdict.evidence}
        rows += wrapped(words(key, **{name: percent(share) for name, share in shares.items()}), inner, "big")
    for finding in verdict.findings[:MOST]:
        sheet = _sheet(finding["code"], words.language)
        said = wrapped(f"{finding['code']} {sheet.sentence(finding['evidence'])}", inner, "value")
        said += wrapped(words("doctor.more", code=finding["code"]), inner, "dim")
        if rows and len(rows) + len(said) > most:
            break
        rows += said
    if not rows:
        rows = [[Piece(words("watch.nothing-found"), "dim")]]
    return box(padded(rows, width), width, [Piece(words("screen.findings"), "title")])
