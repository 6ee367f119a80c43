"""Each page begins with its claims, by section: each claim once, in a section that there is, with the verdicts that ship."""

import json
import re

import pytest
from test_repo import PAPER_NOTEBOOKS

from memnb import claims


@pytest.mark.parametrize("page", PAPER_NOTEBOOKS, ids=lambda p: p.stem)
def test_claims_stand_at_the_beginning_of_their_page(page):
    word = page.stem[3:]
    cells = json.loads(page.read_text(encoding="utf8"))["cells"]
    prose = [
        "".join(c["source"]) for c in cells if c["cell_type"] == "markdown"
    ]
    sections = {
        int(number)
        for source in prose
        for number in re.findall(r"^## (\d+) ", source, re.M)
    }
    table = claims.contents(word)
    assert {*table.section} <= sections
    assert len(table) == len(claims.read(word))
    (cell,) = [
        c for c in cells if "claims.contents_of_page(" in "".join(c["source"])
    ]
    stored = "".join(cell["outputs"][0]["data"]["text/markdown"])
    assert stored == claims.contents_of_page(word).data
