# SPDX-License-Identifier: Apache-2.0
"""The plots of all scenarios, drawn to PNG from made-up rows: texts do not touch, names and units are there."""
import itertools
import struct

import pytest

import scenarios
from support import drivers, plots, record, tables
from support.results import Results

pytest.importorskip("matplotlib")
NAMES = [d.name for d in drivers.every_driver()]
ROUNDS = 5


class Drawing:
    """One plot: its figure, and the file it went to."""

    def __init__(self, figure, path):
        self.figure, self.path = figure, path

    def size(self):
        """Width and height in the PNG's header."""
        return struct.unpack(">II", self.path.read_bytes()[16:24])

    def panels(self):
        return [axis for axis in self.figure.axes if axis.axison]

    def legend(self):
        return [text.get_text() for one in self.figure.legends for text in one.get_texts()]


@pytest.fixture
def draw(monkeypatch, tmp_path):
    """draw(function, arguments after the path) or None where nothing was drawn."""
    def save(plt, figure, path):
        kept.append(figure)
        close, plt.close = plt.close, lambda figure: None
        try:
            return original(plt, figure, path)
        finally:
            plt.close = close

    def call(function, *arguments, **named):
        path = tmp_path / f"{len(kept)}.png"
        done = function(str(path), *arguments, **named)
        assert done == path.exists()
        return Drawing(kept[-1], path) if done else None

    kept, original = [], plots._save
    monkeypatch.setattr(plots, "_save", save)
    yield call
    from matplotlib import pyplot
    pyplot.close("all")


def visible(labels):
    return [label for label in labels if label.get_visible() and label.get_text()]


def texts(axis):
    """Tick labels in their order, and all other texts of a panel."""
    ticks = [plots.tick_labels(axis.xaxis), plots.tick_labels(axis.yaxis)]
    return ticks, visible([axis.xaxis.label, axis.yaxis.label, axis._left_title, *axis.texts])


def check(drawing):
    """No text touches another one or leaves the picture."""
    width, height = drawing.size()
    assert 300 <= width <= 1300 and 250 <= height and drawing.path.stat().st_size > 5000
    whole, boxes = drawing.figure.bbox, []
    for axis in drawing.panels():
        ticks, others = texts(axis)
        assert all(len(labels) > 1 for labels in ticks), axis.get_title("left")
        boxes += [(one.get_text(), one.get_window_extent()) for one in itertools.chain(*ticks, others)]
    boxes += [(t.get_text(), t.get_window_extent()) for one in drawing.figure.legends for t in one.get_texts()]
    for text, box in boxes:
        assert box.x0 >= whole.x0 - 1 and box.y0 >= whole.y0 - 1, text
        assert box.x1 <= whole.x1 + 1 and box.y1 <= whole.y1 + 1, text
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        assert not a.overlaps(b), (one, other)


def fill(seen, keys, names, unit="us"):
    """Values over three orders of magnitude, with a spread, through a record as a run writes it."""
    lines = [{"identity": {}, "environment": {}}]
    for i, ((row, metric), (at, name)) in itertools.product(range(ROUNDS), itertools.product(keys, enumerate(names))):
        value = 3.3 ** (at % 7) * (20 + 3 * i)
        lines.append({"done": ["s", "c", name, i], "samples": [[row, metric, unit, False, [value]]]})
    found = record.Found(lines).by_scenario["s"]
    seen.__dict__.update(found.__dict__)
    return seen


def names_of(scenario):
    """As many as a full run has of it."""
    found = [d.name for d in drivers.every_driver() if scenario.takes(d, False)]
    return found or ["native", "overlayfs", "veneer", "fuse-overlayfs"]


def keys_of(scenario, monkeypatch):
    """What its plots look at."""
    keys = []
    with monkeypatch.context() as patch:
        patch.setattr(plots, "bars", lambda path, seen, panels: keys.extend(p[1:] for p in panels))
        patch.setattr(plots, "lines", lambda path, seen, panels, *rest, **named: keys.extend(k for p in panels for k in p[1]))
        for _, function in scenario.plots(Results()):
            function("")
    return keys


@pytest.mark.parametrize("s", [s for s in scenarios.EVERY if s.plots(Results())], ids=lambda s: s.name)
def test_plots_of_a_scenario(s, draw, monkeypatch):
    seen = fill(Results(), keys_of(s, monkeypatch), names_of(s))
    drawn = [draw(function) for _, function in s.plots(seen)]
    assert all(drawn), "each has more than one bar or point"
    for drawing in drawn:
        check(drawing)


def test_a_single_bar_or_point_is_no_plot(draw):
    seen = fill(Results(), [("r", "m")], ["veneer"])
    assert draw(plots.bars, seen, [("t", "r", "m")]) is None
    assert draw(plots.lines, seen, [("t", [("r", "m")])], [1], ["1"], "x") is None


def test_axes_say_the_unit_the_scale_and_what_is_better(draw):
    keys = [("r1", "m"), ("r2", "m")]
    panel = draw(plots.lines, fill(Results(), keys, ["veneer", "overlayfs"]), [("t", keys)], [1, 1024], ["1K", "1M"], "size").panels()[0]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("size (log scale)", "microseconds (log scale)")
    assert [t.get_text() for t in panel.texts] == ["lower is better"]
    panel = draw(plots.lines, fill(Results(), keys, ["veneer", "btrfs"], "tps"), [("t", keys)], [1, 2], ["1", "2"], "n",
                 log=(False, False)).panels()[0]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("n", "transactions a second")
    assert "higher is better" in [t.get_text() for t in panel.texts]


@pytest.mark.parametrize("unit,values,name", [("us", 30, "microseconds"), ("us", 3e5, "milliseconds"), ("us", 3e8, "seconds"),
                                              ("bytes", 3e9, "GiB"), ("bytes", 3e6, "MiB"), ("MiB/s", 1, "MiB/s")])
def test_units_fit_their_values(unit, values, name):
    assert plots._scale(unit, values)[1] == name


def test_spread_is_drawn(draw):
    seen = fill(Results(), [("r", "m")], ["veneer", "overlayfs"])
    panel = draw(plots.bars, seen, [("t", "r", "m")]).panels()[0]
    (whiskers,) = [c for c in panel.collections]
    low, high = seen.interval("r", "m", "veneer")
    assert [x for x, _ in whiskers.get_segments()[0]] == [low, high]


def test_veneer_has_one_colour_and_each_peer_its_own():
    peers = [n for n in NAMES if not tables.is_ours(n) and n in plots.COLOURS]
    assert {plots.colour(n) for n in NAMES if tables.is_ours(n)} == {plots.OURS}
    assert len({plots.colour(n) for n in peers} | {plots.OURS}) == len(peers) + 1
    assert {d.split("/")[0] for d in NAMES} - {n for n in NAMES if tables.is_ours(n)} <= set(plots.COLOURS) | {"default", "latest", "draw"}


def test_names_are_those_of_the_tables(draw):
    keys = [("r1", "m"), ("r2", "m")]
    seen = fill(Results(), keys, ["veneer", "veneer-rootless", "fuse-overlayfs-2"])
    assert draw(plots.lines, seen, [("t", keys)], [1, 2], ["1", "2"], "n").legend() == seen.drivers()
    bars = draw(plots.bars, seen, [("t", "r1", "m")]).panels()[0]
    assert [t.get_text() for t in bars.get_yticklabels()] == seen.drivers()


def test_labels_that_would_touch_are_left_out(draw):
    keys = [(f"r{i}", "m") for i in range(30)]
    drawing = draw(plots.lines, fill(Results(), keys, ["veneer", "overlayfs"]), [("t", keys)], list(range(1, 31)),
                   [f"{i} seconds" for i in range(30)], "n", log=(False, True))
    check(drawing)
    assert 1 < len(plots.tick_labels(drawing.panels()[0].xaxis)) < 30


def test_a_plot_has_an_opaque_background(draw):
    seen = fill(Results(), [("r", "m")], ["veneer", "overlayfs"])
    assert draw(plots.bars, seen, [("t", "r", "m")]).figure.get_facecolor()[3] == 1
