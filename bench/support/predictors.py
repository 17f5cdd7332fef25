# SPDX-License-Identifier: Apache-2.0
"""veneer's predictor and the paper's two as drivers: of scenarios about what is predicted."""

from . import driver, host, programs

NAMES = {"default": "veneer's own predictor", "latest": "DPSO's latest N",
         "draw": "DPSO's count-weighted draw (its Algorithm 1)"}


class Predictor(driver.Driver):
    """Opens no views: see `predict`. veneer itself has the default one alone."""

    when_named = True

    def predict(self, trace, limit, seed=1):
        """trace: what each start touched, as numbers, in order. What is predicted for each of
        them from those before."""
        text = "".join(" ".join(map(str, start)) + "\n" for start in trace)
        said = host.run(programs.path("bench-predict"), self.name, str(limit), str(seed),
                        given=text)
        return [[int(word) for word in line.split()] for line in said.splitlines()]


def every():
    return [Predictor(name, what) for name, what in NAMES.items()]
