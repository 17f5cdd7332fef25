# SPDX-License-Identifier: Apache-2.0
"""Results as Markdown tables."""

NATIVE = "native"
# Plain directories, whatever they lie on: no peers.
FLOORS = (NATIVE, "volume")


def is_ours(driver):
    return driver.split("-")[0] == "veneer"


def peers(results):
    return [d for d in results.drivers() if d.split("-")[0] not in FLOORS and not is_ours(d)]


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


def _ratios(results, scenario, metric, driver):
    found = results.ratios(scenario, metric, driver)
    return " (" + " / ".join("-" if r is None else f"{r:.3g}" for r in found) + ")"


def _cell(results, scenario, metric, driver, tail, ratios):
    value = (results.tail if tail else results.value)(scenario, metric, driver)
    text = number(value, results.units[scenario, metric])
    if value is None:
        return text
    if results.is_noisy(scenario, metric, driver):
        text = "~" + text
    return text + (_ratios(results, scenario, metric, driver) if ratios else "")


def table(results, title, columns, tail=False, ratios=True):
    """columns: (label, scenario, metric). One line a driver; without data, no table."""
    columns = [c for c in columns if c[1:] in results.units]
    if not columns:
        return ""
    heads = [f"{label} [{results.units[s, m]}]" for label, s, m in columns]
    lines = [f"### {title}", "", "| driver | " + " | ".join(heads) + " |",
             "| --- |" + " ---: |" * len(columns)]
    for driver in results.drivers():
        cells = [_cell(results, s, m, driver, tail, ratios) for _, s, m in columns]
        if any(c != "-" for c in cells):
            name = f"**{driver}**" if is_ours(driver) else driver
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n\n"
