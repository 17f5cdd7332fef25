# SPDX-License-Identifier: Apache-2.0
"""What the scenarios share: drivers, lower trees, the record and the course of a run, measures, report."""
