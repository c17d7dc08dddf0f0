#!/usr/bin/env python3
"""explorer/pack.py MODULE.js INPUTS BUILD_INFO.cpp OUTPUT.html: the explorer's page as one file, with its styles and scripts, the
planner's module, the revision, and the decks, machines and programs of inputs/. Decks that name files of a model which isn't
shipped are left out."""

import json
import pathlib
import re
import sys


def packed(module, inputs, build_info):
    here = pathlib.Path(__file__).parent
    decks = {p.stem: p.read_text() for p in sorted(inputs.glob("*.yaml"))}
    decks = {name: text for name, text in decks.items() if not re.search(r"^\s+hf:", text, re.M)}
    shared = {name: {p.stem: p.read_text() for p in sorted((inputs / name).glob("*.yaml"))} for name in ("machines", "programs")}
    parts = {
        "/*PAGE.CSS*/": (here / "page.css").read_text(),
        "/*PAGE.JS*/": "".join((here / name).read_text() for name in ("planner.js", "show.js", "page.js")),
        "/*MODULE*/": module.read_text(),
        "/*REVISION*/": re.search(r'return "(.*)";', build_info.read_text())[1],
        "/*FILES*/": json.dumps({"decks": decks, **shared}),
    }
    page = (here / "page.html").read_text()
    # A closing tag would end the script that holds it. In JavaScript and JSON <\/ is </.
    for place, text in parts.items():
        before, after = page.split(place)
        page = before + text.replace("</script", "<\\/script") + after
    return page


if __name__ == "__main__":
    module, inputs, build_info, output = map(pathlib.Path, sys.argv[1:])
    output.write_text(packed(module, inputs, build_info))
