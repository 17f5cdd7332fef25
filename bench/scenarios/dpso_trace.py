# SPDX-License-Identifier: Apache-2.0
"""The paper's own trace, predicted."""

from support import predictors, scenario, tables
from support.measures import AtLeast

NAME = "dpso/trace"
RECALL, PRECISION = "paper_trace_recall", "paper_trace_precision"
N = 10
TEN = list(range(1, 11))
# The files that each of the paper's ten containers copied up.
TRACE = [TEN + [11], TEN + [12], TEN + [13, 23], TEN + [11], TEN + [15], TEN + [16],
         TEN[:9] + [11], TEN, TEN + [11], TEN + [20]]
SEEDS = 40


def scores(trace, predicted):
    """Means over all starts but the first, which nothing is known before: of what was touched,
    the part that was predicted; of what was predicted, the part that was touched."""
    pairs = [(set(a), set(b)) for a, b in zip(trace, predicted)][1:]
    return (sum(len(a & b) / len(a) for a, b in pairs) / len(pairs),
            sum(len(a & b) / len(b) if b else 0 for a, b in pairs) / len(pairs))


class Trace(scenario.Scenario):
    """DPSO: accuracy on the paper's trace of ten containers

    The paper prints which files ten containers copied up, and for N = 10 how many of them it had
    predicted from the containers before: 78.6 % on the average. Here the same trace goes through
    veneer's predictor, `default`, and the paper's two, which the bench has to compare with.
    `latest` and `draw` predict N files; `draw` is drawn with 40 seeds. `default` takes at most N
    on trust, and beyond N what its own history says will come back now: in the seventh container it predicts an eleventh file, which
    was there in the first and the fourth. Files that are in one container alone can be foreseen by
    nobody; without them nothing gets beyond 94.1 %."""

    name = NAME
    question = "How good is the prediction on the paper's own trace?"
    drivers = tuple(predictors.NAMES)
    seconds = 0.2, 0.2

    def cells(self, quick):
        return ["trace"]

    def act(self, run, cell, driver):
        seeds = range(1, SEEDS + 1) if driver.name == "draw" else (1,)
        seen = [scores(TRACE, driver.predict(TRACE, N, seed)) for seed in seeds]
        for metric, values in zip((RECALL, PRECISION), zip(*seen)):
            run.add(NAME, metric, [sum(values) / len(values)], "fraction")

    def measures(self):
        return [AtLeast(NAME, RECALL, "default", 0.91), AtLeast(NAME, PRECISION, "default", 0.98)]

    def tables(self, seen):
        return tables.table(seen, "Ten containers, N = 10", [("recall", NAME, RECALL),
                                                             ("precision", NAME, PRECISION)],
                            ratios=False)
