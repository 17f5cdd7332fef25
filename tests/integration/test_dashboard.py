# SPDX-License-Identifier: Apache-2.0
"""contrib/grafana/veneer.json asks for nothing that `veneer stats --prometheus` does not print."""
import json
import os
import re
import subprocess

import pytest

from support import linux
from support.content import blob
from support.expect import write_at
from support.places import Place
from support.repository import REPOSITORY

DASHBOARD = REPOSITORY / "contrib" / "grafana" / "veneer.json"
# Series that Prometheus adds to each target.
ADDED = {"instance", "job"}


def queries():
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


def test_panels_have_places_and_numbers_of_their_own():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({p["id"] for p in panels}) == len(panels)
    taken = set()
    for p in panels:
        at = p["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, p["title"]
        taken |= cells


@pytest.fixture
def printed(stack, shared, veneer_bin):
    """{metric: labels} of a server with a mount that was used."""
    (stack.lower() / "f").write_bytes(blob(300_000))
    place = Place(stack, "p")
    place.mount(stack, shared, "size=10M", "inodes=100")
    write_at(place.mnt / "f", b"x", 5)
    text = subprocess.run([veneer_bin, "stats", "--prometheus"], capture_output=True, text=True, check=True,
                          env={**os.environ, **shared.environment}).stdout
    linux.umount(place.mnt)
    found = {}
    for name, labels in re.findall(r"^(veneer_\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def test_every_query_names_what_is_printed(printed):
    asked = [(title, expr) for title, expr in queries()]
    assert len(asked) > 25
    for title, expr in asked:
        names = re.findall(r"\bveneer_\w+", expr)
        assert names, (title, expr)
        for name in names:
            assert name in printed, (title, name)
        for name, matchers in re.findall(r"\b(veneer_\w+)\{([^}]*)\}", expr):
            assert set(re.findall(r"(\w+)=~?\"", matchers)) <= printed[name] | ADDED, (title, expr)
        for labels in re.findall(r"\bby \(([^)]*)\)", expr):
            for name in names:
                assert {label.strip() for label in labels.split(",")} <= printed[name] | ADDED, (title, expr)
