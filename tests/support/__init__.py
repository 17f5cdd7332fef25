# SPDX-License-Identifier: Apache-2.0
"""What the suites share. tests/conftest.py puts it in their path."""
