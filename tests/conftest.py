# SPDX-License-Identifier: Apache-2.0
"""Every suite imports what suites share as `support`; tests/bench means the bench's own by that."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
