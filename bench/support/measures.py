# SPDX-License-Identifier: Apache-2.0
"""What the project promises, as checks on results. All comparisons are of times, made round by
round; the median over the rounds decides."""

from collections import namedtuple

from . import stats

NOISE = 1.05
# The driver that the promises are about.
SUBJECT = "veneer"

# A row of the verdict: text, what was seen, and one of PASS, CLOSE, FAIL, NONE, INFO, LEFT_OUT.
Verdict = namedtuple("Verdict", "text seen mark")
PASS, CLOSE, FAIL, NONE, INFO = "pass", "pass (within noise)", "FAIL", "no data", "reported"
LEFT_OUT = "not in a quick run"


class Measure:
    """scenarios()      the rows it looks at, all of one metric
    drivers(subject)    those whose results it takes, by name
    check(results, subject)  its Verdict"""

    def drivers(self, subject):
        return [subject]


class AtMost(Measure):
    """Time of the subject is at most limit x the reference's. close: accept NOISE above it."""

    def __init__(self, scenario, metric, reference, limit, close=False, must=True):
        self.scenario, self.metric, self.reference = scenario, metric, reference
        self.limit, self.close, self.must = limit, close, must

    def scenarios(self):
        return [self.scenario]

    def drivers(self, subject):
        return [subject, self.reference]

    def check(self, results, subject):
        ratio = results.ratio(self.scenario, self.metric, subject, self.reference)
        text = f"{self.scenario}, {self.metric}: {self.wanted()}"
        if ratio is None:
            return Verdict(text, "-", NONE)
        return Verdict(text, self.seen(ratio), self.mark(ratio))

    def mark(self, ratio):
        if not self.must:
            return INFO
        if ratio <= self.limit:
            return PASS
        return CLOSE if self.close and ratio <= self.limit * NOISE else FAIL

    def wanted(self):
        return f"at most {self.limit:g}x the time of {self.reference}"

    def seen(self, ratio):
        return f"{ratio:.3g}x"


class AtMostBest(AtMost):
    """Time of the subject is at most limit x that of the best of some references."""

    def __init__(self, scenario, metric, references, limit, must=True):
        super().__init__(scenario, metric, " and ".join(references), limit, must=must)
        self.references = references

    def drivers(self, subject):
        return [subject, *self.references]

    def check(self, results, subject):
        best = results.best(self.scenario, self.metric, self.references)
        ratio = best and results.ratio(self.scenario, self.metric, subject, best)
        text = f"{self.scenario}, {self.metric}: {self.wanted()}"
        if not ratio:
            return Verdict(text, "-", NONE)
        return Verdict(text, f"{self.seen(ratio)} ({best})", self.mark(ratio))


class Faster(AtMost):
    """The subject is at least factor times as fast as the reference."""

    def __init__(self, scenario, metric, reference, factor, must=True):
        super().__init__(scenario, metric, reference, 1 / factor, must=must)
        self.factor = factor

    def wanted(self):
        return f"at least {self.factor:g}x as fast as {self.reference}"

    def seen(self, ratio):
        return f"{1 / ratio:.3g}x as fast"


class FlatIn(Measure):
    """The subject takes at most limit x as long in one scenario as in another, or as by another
    metric (than)."""

    def __init__(self, large, small, metric, limit, than=None, must=True):
        self.large, self.small, self.metric, self.limit = large, small, metric, limit
        self.than, self.must = than or metric, must

    def scenarios(self):
        return [self.large, self.small]

    def check(self, results, subject):
        other = self.small if self.than == self.metric else f"{self.small}, {self.than}"
        text = f"{self.large}, {self.metric}: at most {self.limit:g}x the time of {other}"
        large = results.rounds(self.large, self.metric, subject)
        small = results.rounds(self.small, self.than, subject)
        ratio = stats.round_ratio(large, small, results.is_higher_better(self.large, self.metric))
        if ratio is None:
            return Verdict(text, "-", NONE)
        mark = INFO if not self.must else PASS if ratio <= self.limit else FAIL
        return Verdict(text, f"{ratio:.3g}x", mark)


class Below(Measure):
    """The subject's own value is at most limit. must: or it is only reported."""

    def __init__(self, scenario, metric, limit, must=True):
        self.scenario, self.metric, self.limit, self.must = scenario, metric, limit, must

    def scenarios(self):
        return [self.scenario]

    def check(self, results, subject):
        text = f"{self.scenario}, {self.metric}: at most {self.limit:g}"
        value = results.value(self.scenario, self.metric, subject)
        if value is None:
            return Verdict(text, "-", NONE)
        mark = INFO if not self.must else PASS if value <= self.limit else FAIL
        return Verdict(text, f"{value:.4g}", mark)


class TailBelow(Below):
    """The 99th percentile of the subject's samples is at most limit."""

    def __init__(self, scenario, metric, limit, unit):
        super().__init__(scenario, metric, limit)
        self.unit = unit

    def check(self, results, subject):
        text = f"{self.scenario}, {self.metric}: 99 of 100 at most {self.limit:g} {self.unit}"
        value = results.tail(self.scenario, self.metric, subject)
        if value is None:
            return Verdict(text, "-", NONE)
        return Verdict(text, f"{value:.4g} {self.unit}", PASS if value <= self.limit else FAIL)


class Less(Measure):
    """The subject has at least so large a share less of something than the reference."""

    def __init__(self, scenario, metric, reference, share):
        self.scenario, self.metric, self.reference = scenario, metric, reference
        self.share = share

    def scenarios(self):
        return [self.scenario]

    def drivers(self, subject):
        return [subject, self.reference]

    def check(self, results, subject):
        text = (f"{self.scenario}, {self.metric}: " +
                (f"at least {100 * self.share:g} % less than {self.reference}"
                 if self.share >= 0 else
                 f"at most {-100 * self.share:g} % more than {self.reference}"))
        ratio = results.ratio(self.scenario, self.metric, subject, self.reference)
        if ratio is None:
            return Verdict(text, "-", NONE)
        seen = f"{100 * (1 - ratio):.3g} % less" if ratio <= 1 else f"{100 * (ratio - 1):.3g} % more"
        return Verdict(text, seen, PASS if 1 - ratio >= self.share else FAIL)


class Growth(Measure):
    """From one scenario to another the subject's value grows at most limit x, and at most by that
    share of what the reference's grows."""

    def __init__(self, large, small, metric, limit, reference, share):
        self.large, self.small, self.metric, self.limit = large, small, metric, limit
        self.reference, self.share = reference, share

    def scenarios(self):
        return [self.large, self.small]

    def drivers(self, subject):
        return [subject, self.reference]

    def _growth(self, results, driver):
        pair = [results.rounds(s, self.metric, driver) for s in (self.large, self.small)]
        ratio = stats.round_ratio(*pair, results.is_higher_better(self.large, self.metric))
        return None if ratio is None else ratio - 1

    def check(self, results, subject):
        text = (f"{self.large}, {self.metric}: at most {self.limit:g}x that of {self.small}, "
                f"growing at most {self.share:g}x as much as {self.reference}")
        own, other = (self._growth(results, d) for d in (subject, self.reference))
        if own is None or other is None:
            return Verdict(text, "-", NONE)
        is_met = own <= self.limit - 1 and (own <= 0 or own <= other * self.share)
        return Verdict(text, f"{1 + own:.3g}x, {self.reference} {1 + other:.3g}x",
                       PASS if is_met else FAIL)


class ByDriver(Measure):
    """The same of another driver than the subject."""

    def __init__(self, driver, measure):
        self.driver, self.measure = driver, measure

    def scenarios(self):
        return self.measure.scenarios()

    def drivers(self, _):
        return self.measure.drivers(self.driver)

    @property
    def metric(self):
        return self.measure.metric

    def check(self, results, _):
        v = self.measure.check(results, self.driver)
        return v._replace(text=f"{self.driver}: {v.text}")


class AtLeast(Measure):
    """A driver's own value is at least limit."""

    def __init__(self, scenario, metric, driver, limit):
        self.scenario, self.metric, self.driver, self.limit = scenario, metric, driver, limit

    def scenarios(self):
        return [self.scenario]

    def drivers(self, _):
        return [self.driver]

    def check(self, results, subject):
        del subject
        text = f"{self.scenario}, {self.metric} of {self.driver}: at least {self.limit:g}"
        value = results.value(self.scenario, self.metric, self.driver)
        if value is None:
            return Verdict(text, "-", NONE)
        return Verdict(text, f"{value:.4g}", PASS if value >= self.limit else FAIL)


def check_all(measures, results, subject=SUBJECT):
    return [m.check(results, subject) for m in measures]


def failed(verdicts):
    """A measure without data is not met: it was asked for and could not be shown."""
    return any(v.mark in (FAIL, NONE) for v in verdicts)


def table(verdicts):
    lines = ["| measure | seen | verdict |", "| --- | --- | --- |"]
    return "\n".join(lines + [f"| {v.text} | {v.seen} | {v.mark} |" for v in verdicts]) + "\n"
