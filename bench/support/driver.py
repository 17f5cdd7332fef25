# SPDX-License-Identifier: Apache-2.0
"""The interface of all drivers."""


# What state() says of one that can be had.
READY, TO_BUILD = "ready", "built at first use"
THERE = READY, TO_BUILD


class Driver:
    """name: as in results; kind: volume it works on; in_place: changes stay in its files;
    is_ours: it is what the bench is about, not a peer; when_named: only for scenarios that
    name it."""

    kind = "host"
    in_place = False
    when_named = False

    def __init__(self, name, what):
        self.name, self.what = name, what

    @property
    def is_ours(self):
        return self.name.split("-")[0] == "veneer"

    def missing(self):
        """Why this driver can not run here, or None. May build it."""
        return None

    def state(self):
        """As missing(), but builds nothing."""
        return self.missing() or READY

    def version(self):
        return ""

    def mount_options(self):
        """Beside lowerdir, upperdir and workdir."""
        return ""

    def open(self, work, lower, keep=True):
        """A fresh View. keep=False: the caller destroys what it finds."""
        raise NotImplementedError

    def group(self, work):
        """For many views at once."""
        return Group(self)

    def apart(self, work):
        """As group, for work that can not share a tree: of a driver that works in place each view
        is a copy."""
        return Group(self, keep=False) if self.in_place else self.group(work)


class Group:
    """Views of one driver that live side by side, and the processes that serve them. Use as a
    context: the views end with it."""

    def __init__(self, driver, keep=True):
        self.driver, self.keep, self.views = driver, keep, []

    def add(self, work, lower):
        view = self.driver.open(work, lower, keep=self.keep)
        self.views.append(view)
        return view

    def servers(self):
        """Process ids."""
        return []

    def close(self):
        while self.views:
            self.views.pop().close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
