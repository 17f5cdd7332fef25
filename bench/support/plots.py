# SPDX-License-Identifier: Apache-2.0
"""Results as SVG plots. Each function says whether it drew: there may be no data, or no
matplotlib.

A panel's title says what was measured, its subtitle which way is better. veneer has one colour in
all plots, each peer its own. Whiskers are the spread of the rounds; a hollow point, and a ~ at a bar, mark rounds that differ by
more than a quarter. The background is light and
opaque, so that a plot reads alike on light and dark pages."""

import math
import textwrap

from . import host, tables

BACKGROUND, INK, FAINT = "#fafaf7", "#222222", "#666666"
OURS = "#d55e00"
COLOURS = {
    "native": "#8a8a8a", "volume": "#555555", "native-xfs": "#b0a890", "native-btrfs": "#a3adb8",
    "overlayfs": "#0072b2", "overlayfs-metacopy": "#56a0d3", "overlayfs-xfs": "#003f7f",
    "overlayfs-btrfs": "#4b6cb7", "fuse-overlayfs": "#009e73", "fuse-overlayfs-rootless": "#6cc4a1",
    "fuse-overlayfs-2": "#b5509c", "btrfs": "#b8860b", "vfs": "#6b4c9a", "dm-thin": "#7a5230",
    "reflink": "#008b8b",
}
OTHER = "#333333"
# Variants of veneer share its colour and differ in these.
DASHES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1)), (0, (1, 3)), (0, (8, 3)), (0, (3, 1, 1, 1, 1, 1)))
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "--", "oo")
WORDS = {"us": "microseconds", "ms": "milliseconds", "s": "seconds", "x": "copies",
         "op/s": "operations a second", "tps": "transactions a second", "%": "per cent"}
# Unit, the least greatest value at which it becomes the next one, factor, and that one's name.
STEPS = {"us": ((1e7, 1e6, "seconds"), (1e4, 1e3, "milliseconds")),
         "bytes": ((1 << 31, 1 << 30, "GiB"), (1 << 21, 1 << 20, "MiB"), (1 << 13, 1 << 10, "KiB"))}
PANEL_IN, TITLE_COLUMNS = (3.7, 2.9), 30


def _pyplot():
    try:
        import matplotlib
    except ImportError:
        host.note("no plot: matplotlib is not installed")
        return None
    matplotlib.use("Agg")
    matplotlib.rcParams.update({
        "svg.hashsalt": "veneer", "font.size": 9, "text.color": INK, "axes.labelcolor": INK,
        "axes.edgecolor": FAINT, "xtick.color": INK, "ytick.color": INK, "axes.facecolor": BACKGROUND,
        "figure.facecolor": BACKGROUND, "savefig.facecolor": BACKGROUND, "hatch.linewidth": 0.6})
    from matplotlib import pyplot
    return pyplot


def colour(driver):
    return OURS if tables.is_ours(driver) else COLOURS.get(driver, OTHER)


def _variant(driver, drivers):
    """0 for veneer and for each peer, another number for each variant of veneer."""
    ours = sorted((d for d in drivers if tables.is_ours(d)), key=lambda d: (d != "veneer", d))
    return ours.index(driver) % len(DASHES) if tables.is_ours(driver) else 0


def _scale(unit, greatest):
    """(factor, name) of the unit in which the greatest value reads well."""
    for least, factor, name in STEPS.get(unit, ()):
        if greatest >= least:
            return factor, name
    return 1, WORDS.get(unit, unit)


def _grid(plt, count, legend_in=0.0):
    wide = count if count < 4 else 2 if count == 4 else 3
    rows = -(-count // wide)
    width, height = PANEL_IN[0] * wide, PANEL_IN[1] * rows + legend_in
    figure, axes = plt.subplots(rows, wide, figsize=(width, height), squeeze=False,
                                layout="constrained")
    share = legend_in / height
    figure.get_layout_engine().set(rect=(0, share, 1, 1 - share), w_pad=0.12, h_pad=0.1)
    flat = list(axes.flat)
    for unused in flat[count:]:
        unused.axis("off")
    return figure, flat


def _head(axis, title, is_higher_better):
    axis.set_title(textwrap.fill(title, TITLE_COLUMNS), loc="left", fontsize=9.5, fontweight="bold", pad=17)
    axis.annotate("higher is better" if is_higher_better else "lower is better", (0, 1), (0, 5),
                  xycoords="axes fraction", textcoords="offset points", fontsize=8, color=FAINT)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_axisbelow(True)


def _whiskers(results, scenario, metric, driver, factor):
    """Below and above the value, as matplotlib takes them; none where the spread is not known."""
    value, known = results.value(scenario, metric, driver), results.interval(scenario, metric, driver)
    if known is None:
        return math.nan, math.nan
    return max(0, value - known[0]) / factor, max(0, known[1] - value) / factor


def _whiskers_of(results, keys, factor):
    """As errorbar and barh take them for some (scenario, metric, driver)."""
    every = [_whiskers(results, *key, factor) for key in keys]
    return None if all(math.isnan(below) for below, _ in every) else list(zip(*every))


def _do_touch(labels):
    boxes = [label.get_window_extent().padded(3) for label in labels]
    return any(a.overlaps(b) for a, b in zip(boxes, boxes[1:]))


def tick_labels(axis):
    """Those of an x or y axis that are drawn, in their order."""
    low, high = sorted(axis.get_view_interval())
    slack = 1e-9 * (high - low)
    return [t.label1 for t in axis.get_major_ticks()
            if low - slack <= t.get_loc() <= high + slack and t.label1.get_visible() and t.label1.get_text()]


def _part_labels(figure, axes):
    """Fewer tick labels on an axis where they would touch."""
    figure.canvas.draw()
    figure.set_layout_engine("none")  # it is laid out, and to do it again takes as long
    for axis in (one for a in axes for one in (a.xaxis, a.yaxis)):
        shown = tick_labels(axis)
        step = 1
        while _do_touch(shown[::step]):
            step += 1
        for i, label in enumerate(shown):
            label.set_visible(i % step == 0)


def _save(plt, figure, path):
    _part_labels(figure, figure.axes)
    figure.savefig(path, **({"metadata": {"Date": None}} if path.endswith(".svg") else {}))
    plt.close(figure)
    return True


def _log_ticks(plt, axis):
    """Ticks of a log axis, more than powers of ten where few of those are seen."""
    low, high = axis.get_view_interval()
    steps = (1,) if high / low >= 200 else (1, 2, 5) if high / low >= 10 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    axis.set_major_locator(plt.matplotlib.ticker.LogLocator(10, steps))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def _points(results, driver, xs, keys, is_log):
    found = [(x, s, m) for x, (s, m) in zip(xs, keys)]
    found = [(x, s, m, results.value(s, m, driver)) for x, s, m in found]
    return [p for p in found if p[3] is not None and (p[3] > 0 or not is_log)]


def _line_panel(axis, results, panel, xs, is_log):
    """Draws it and returns the unit's name."""
    title, keys = panel
    drivers = results.drivers()
    series = {d: _points(results, d, xs, keys, is_log) for d in drivers}
    unit = next(results.units[k] for k in keys if k in results.units)
    factor, name = _scale(unit, max(p[3] for points in series.values() for p in points))
    for driver, points in series.items():
        if points:
            spread = _whiskers_of(results, [(s, m, driver) for _, s, m, _ in points], factor)
            axis.errorbar([p[0] for p in points], [p[3] / factor for p in points], spread,
                          label=driver, color=colour(driver), marker="o", markersize=3.5, capsize=2.5,
                          elinewidth=1, linewidth=2.4 if driver == "veneer" else 1.3,
                          linestyle=DASHES[_variant(driver, drivers)], zorder=3 if tables.is_ours(driver) else 2)
            noisy = [(x, value / factor) for x, s, m, value in points if results.is_noisy(s, m, driver)]
            axis.plot(*zip(*noisy) if noisy else ((), ()), linestyle="", marker="o", markersize=3.5, color=colour(driver),
                      markerfacecolor=BACKGROUND, zorder=4)
    _head(axis, title, results.is_higher_better(*next(k for k in keys if k in results.units)))
    return name


def lines(path, results, panels, xs, labels, xlabel, log=(True, True)):
    """panels: (title, [(scenario, metric) for each x]); a line a driver. A panel without a line of
    two points is left out."""
    panels = [p for p in panels
              if any(len(_points(results, d, xs, p[1], log[1])) > 1 for d in results.drivers())]
    plt = _pyplot() if panels else None
    if not plt:
        return False
    wide = min(3, len(panels))
    columns = max(1, 2 * wide)
    figure, axes = _grid(plt, len(panels), 0.1 + 0.22 * -(-len(results.drivers()) // columns))
    for axis, panel in zip(axes, panels):
        unit = _line_panel(axis, results, panel, xs, log[1])
        axis.set(xscale="log" if log[0] else "linear", yscale="log" if log[1] else "linear",
                 xlabel=xlabel + (" (log scale)" if log[0] else ""),
                 ylabel=unit + (" (log scale)" if log[1] else ""))
        axis.set_xticks(xs, labels)
        axis.set_xticks([], minor=True)
        if log[1]:
            _log_ticks(plt, axis.yaxis)
        else:
            axis.set_ylim(bottom=0)
        axis.grid(True, which="major", alpha=0.25)
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels())}
    figure.legend(handles.values(), handles, loc="lower center", ncol=columns, fontsize=8, frameon=False)
    return _save(plt, figure, path)


def _short(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _bar_panel(axis, results, panel):
    title, scenario, metric = panel
    drivers = [d for d in results.drivers() if results.value(scenario, metric, d) is not None]
    values = [results.value(scenario, metric, d) for d in drivers]
    unit = results.units[scenario, metric]
    ends = [max(results.interval(scenario, metric, d) or [value]) for d, value in zip(drivers, values)]
    factor, name = _scale(unit, max(ends))
    spread = _whiskers_of(results, [(scenario, metric, d) for d in drivers], factor)
    axis.barh(drivers, [v / factor for v in values], xerr=spread, height=0.7,
              color=[colour(d) for d in drivers], edgecolor=BACKGROUND, capsize=2.5,
              hatch=[HATCHES[_variant(d, drivers)] for d in drivers],
              error_kw={"elinewidth": 1, "ecolor": INK})
    for at, (driver, value, end) in enumerate(zip(drivers, values, ends)):
        mark = "~" if results.is_noisy(scenario, metric, driver) else ""
        axis.annotate(mark + _short(value / factor), (end / factor, at), (4, 0), textcoords="offset points",
                      va="center", fontsize=8)
    axis.invert_yaxis()
    axis.set(xlabel=name, xlim=(min(0, *values) / factor, max(max(ends), 1e-9) / factor * 1.3))
    axis.locator_params(axis="x", nbins=4)
    axis.grid(True, axis="x", alpha=0.25)
    _head(axis, title, results.is_higher_better(scenario, metric))


def bars(path, results, panels):
    """panels: (title, scenario, metric), one bar a driver. A single bar is no plot."""
    panels = [p for p in panels
              if sum(results.value(*p[1:], d) is not None for d in results.drivers()) > 1]
    plt = _pyplot() if panels else None
    if not plt:
        return False
    figure, axes = _grid(plt, len(panels))
    for axis, panel in zip(axes, panels):
        _bar_panel(axis, results, panel)
    return _save(plt, figure, path)
