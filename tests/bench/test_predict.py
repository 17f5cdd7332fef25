# SPDX-License-Identifier: Apache-2.0
"""The paper's two predictors, which only the bench has; veneer's own has a unit test."""
from scenarios import dpso_trace
from support import predictors

LATEST, DRAW = (predictors.Predictor(name, predictors.NAMES[name]) for name in ("latest", "draw"))


def test_latest_is_the_last_ones_first():
    assert LATEST.predict([list(range(11)), [0, 1], []], 3) == [[], [10, 9, 8], [1, 0, 10]]


def test_draws_by_count_and_seed():
    trace = [[0, 1], *[[0]] * 29, []]
    drawn = [DRAW.predict(trace, 1, seed)[-1] for seed in range(1, 101)]
    assert drawn == [DRAW.predict(trace, 1, seed)[-1] for seed in range(1, 101)]
    # 30 of 31 times.
    assert 85 < drawn.count([0]) < 100 and drawn.count([1]) == 100 - drawn.count([0])


def test_nothing_is_drawn_twice():
    assert sorted(DRAW.predict([[0]] * 30 + [list(range(64)), []], 64, 7)[-1]) == list(range(64))


def test_the_papers_trace_is_predicted_as_published():
    """A change of a predictor wants another run of dpso/trace."""
    def recall(name, seed=1):
        predictor = predictors.Predictor(name, "")
        return dpso_trace.scores(dpso_trace.TRACE, predictor.predict(dpso_trace.TRACE, dpso_trace.N, seed))[0]
    drawn = [recall("draw", seed) for seed in range(1, dpso_trace.SEEDS + 1)]
    assert [round(found, 3) for found in (recall("default"), recall("latest"), sum(drawn) / len(drawn))] == [0.921, 0.818, 0.781]
