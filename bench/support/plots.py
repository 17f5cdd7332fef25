# SPDX-License-Identifier: Apache-2.0
"""Results as SVG plots. Each function says whether it drew: there may be no data, or no
matplotlib."""

from . import host, tables


def _pyplot():
    try:
        import matplotlib
    except ImportError:
        host.note("no plot: matplotlib is not installed")
        return None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "veneer"
    from matplotlib import pyplot
    return pyplot


def _grid(plt, count, tall=4.0):
    wide = min(3, count)
    rows = -(-count // wide)
    figure, axes = plt.subplots(rows, wide, figsize=(5.2 * wide, tall * rows), squeeze=False)
    flat = list(axes.flat)
    for unused in flat[count:]:
        unused.axis("off")
    return figure, flat


def _save(plt, figure, path):
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    return True


def lines(path, results, panels, xs, labels, xlabel, log=(True, True)):
    """panels: (title, [(scenario, metric) for each x]); a line a driver."""
    panels = [p for p in panels if any(k in results.units for k in p[1])]
    plt = _pyplot() if panels else None
    if not plt:
        return False
    figure, axes = _grid(plt, len(panels))
    for axis, (title, keys) in zip(axes, panels):
        for driver in results.drivers():
            points = [(x, results.value(s, m, driver)) for x, (s, m) in zip(xs, keys)]
            points = [(x, y) for x, y in points if y is not None and (y > 0 or not log[1])]
            if points:
                axis.plot(*zip(*points), marker="o", markersize=3, label=driver,
                          linewidth=2.5 if driver == "veneer" else 1.2)
        unit = next(results.units[k] for k in keys if k in results.units)
        axis.set(xscale="log" if log[0] else "linear", yscale="log" if log[1] else "linear",
                 title=title, xlabel=xlabel, ylabel=unit)
        axis.set_xticks(xs, labels)
        axis.set_xticks([], minor=True)
        axis.grid(True, which="major", alpha=0.3)
    axes[0].legend(fontsize=7)
    return _save(plt, figure, path)


def bars(path, results, panels):
    """panels: (title, scenario, metric), one bar a driver."""
    panels = [p for p in panels if p[1:] in results.units]
    plt = _pyplot() if panels else None
    if not plt:
        return False
    figure, axes = _grid(plt, len(panels))
    for axis, (title, scenario, metric) in zip(axes, panels):
        seen = [(d, results.value(scenario, metric, d)) for d in results.drivers()]
        seen = [(d, v) for d, v in seen if v is not None]
        axis.barh([d for d, _ in seen], [v for _, v in seen],
                  color=["C3" if tables.is_ours(d) else "C0" for d, _ in seen])
        axis.invert_yaxis()
        axis.set(title=title, xlabel=results.units[scenario, metric])
    return _save(plt, figure, path)
