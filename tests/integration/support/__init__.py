# SPDX-License-Identifier: Apache-2.0
import os
import sys

# What suites that do not mount by themselves need, too.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
