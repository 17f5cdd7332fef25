# SPDX-License-Identifier: Apache-2.0
"""Results as Markdown tables and as plots."""

from . import measures

REFERENCES = ("overlayfs", "fuse-overlayfs")


def number(value, unit):
    if value is None:
        return "-"
    if unit == "us" and value >= 10000:
        return f"{value / 1000:.0f} ms"
    if unit == "bytes" and abs(value) >= 1 << 20:
        return f"{value / (1 << 20):.0f} MiB"
    if unit == "bytes":
        return f"{value:.0f}"
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def ratio_text(results, scenario, metric, driver):
    ratios = [results.ratio(scenario, metric, driver, r) for r in REFERENCES]
    return " (" + " / ".join("-" if r is None else f"{r:.3g}" for r in ratios) + ")"


def table(results, title, columns, tail=False, ratios=True):
    """columns: (label, scenario, metric). One line a driver; without data, no table."""
    columns = [c for c in columns if c[1:] in results.units]
    if not columns:
        return ""
    heads = [f"{label} [{results.units[s, m]}]" for label, s, m in columns]
    lines = [f"### {title}", "", "| driver | " + " | ".join(heads) + " |",
             "| --- |" + " ---: |" * len(columns)]
    for driver in results.drivers():
        cells = []
        for _, scenario, metric in columns:
            read = results.tail if tail else results.value
            value = read(scenario, metric, driver)
            text = number(value, results.units[scenario, metric])
            if ratios and value is not None:
                text += ratio_text(results, scenario, metric, driver)
            cells.append(text)
        lines.append(f"| {driver} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n\n"


def preface(title, environment, rounds, lines):
    facts = ", ".join(f"{k} {v}" for k, v in environment.items() if not isinstance(v, dict))
    versions = environment.get("versions", {})
    out = [f"# {title}", "", f"{facts}.", ""]
    out += [f"- {name}: {text}" for name, text in versions.items() if text]
    out += [f"- {line}" for line in lines]
    out += ["", f"Median over {rounds} rounds of each round's median. In brackets: time relative "
            "to overlayfs / to fuse-overlayfs 1.x, taken in each round, median (below 1: "
            "faster).", ""]
    return "\n".join(out) + "\n"


def verdict_section(verdicts, subject):
    return f"## Measures, for {subject}\n\n" + measures.table(verdicts)


def _pyplot():
    """None, with one line, where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed")
        return None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "veneer"
    from matplotlib import pyplot
    return pyplot


def _grid(plt, count):
    wide = min(3, count)
    tall = -(-count // wide)
    figure, axes = plt.subplots(tall, wide, figsize=(5.2 * wide, 4 * tall), squeeze=False)
    flat = list(axes.flat)
    for unused in flat[count:]:
        unused.axis("off")
    return figure, flat


def plot_lines(path, results, panels, sizes, labels):
    """panels: (title, [(scenario, metric) for each size]). Both axes logarithmic."""
    panels = [p for p in panels if any(k in results.units for k in p[1])]
    plt = _pyplot() if panels else None
    if not plt:
        return False
    figure, axes = _grid(plt, len(panels))
    for axis, (title, keys) in zip(axes, panels):
        for driver in results.drivers():
            points = [(x, results.value(s, m, driver)) for x, (s, m) in zip(sizes, keys)]
            points = [(x, y) for x, y in points if y]
            if points:
                axis.plot(*zip(*points), marker="o", markersize=3,
                          linewidth=2.5 if driver == "veneer" else 1.2, label=driver)
        axis.set(xscale="log", yscale="log", title=title, xlabel="file size",
                 ylabel="microseconds")
        axis.set_xticks(sizes, labels)
        axis.set_xticks([], minor=True)
        axis.grid(True, which="major", alpha=0.3)
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    return True


def plot_bars(path, results, panels):
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
                  color=["C3" if d == "veneer" else "C0" for d, _ in seen])
        axis.invert_yaxis()
        axis.set(title=title, xlabel=results.units[scenario, metric])
    figure.tight_layout()
    figure.savefig(path)
    return True
