# SPDX-License-Identifier: Apache-2.0
"""What the scenarios share: drivers, lower trees, rounds, statistics, measures, report."""
