# SPDX-License-Identifier: Apache-2.0
"""The state of a directory, and whether that may be left of an operation that failed."""
import os
import stat

BLOCK = 4096


def _entry(path):
    st = os.lstat(path)
    what = {"type": stat.S_IFMT(st.st_mode), "mode": stat.S_IMODE(st.st_mode), "owner": (st.st_uid, st.st_gid)}
    if stat.S_ISLNK(st.st_mode):
        what["target"] = os.readlink(path)
        return what
    names = [name for name in os.listxattr(path) if name.startswith("user.")]
    what["xattrs"] = {name: os.getxattr(path, name) for name in sorted(names)}
    if stat.S_ISREG(st.st_mode):
        what["nlink"] = st.st_nlink
        with open(path, "rb", buffering=0) as f:
            data = f.read(st.st_size + 1)
            while piece := f.read(1 << 20):
                data += piece
        assert len(data) == st.st_size, f"{path}: {len(data)} bytes read, the size is {st.st_size}"
        what["data"] = data
    return what


def take(root):
    """Everything below root by its path there; an OSError when it does not answer."""
    found, pending = {"": _entry(root)}, [""]
    while pending:
        directory = pending.pop()
        for name in os.listdir(os.path.join(root, directory)):
            relative = os.path.join(directory, name)
            found[relative] = _entry(os.path.join(root, relative))
            if found[relative]["type"] == stat.S_IFDIR:
                pending.append(relative)
    return found


def _blocks_fit(data, old, new):
    """Every block is the old or the new one; what no file had there, zeros."""
    if len(data) not in (len(old), len(new)) and not (min(len(old), len(new)) < len(data) <= max(len(old), len(new))):
        return False
    longest = max(len(old), len(new))
    for off in range(0, len(data), BLOCK):
        is_, was, will = (b[off:off + BLOCK] for b in (data, old.ljust(longest, b"\0"), new.ljust(longest, b"\0")))
        if is_ not in (was[:len(is_)], will[:len(is_)]):
            return False
    return True


def is_between(state, old, new):
    """One of the two, property by property, and block by block: what an operation on one object may leave."""
    if not (state.keys() >= old.keys() & new.keys() and state.keys() <= old.keys() | new.keys()):
        return False
    for path, entry in state.items():
        # A file that is new may be there and empty.
        before, after = old.get(path) or {**new[path], "data": b""}, new.get(path) or old[path]
        for key, value in entry.items():
            if key == "data" and _blocks_fit(value, before.get(key, b""), after.get(key, b"")):
                continue
            if value not in (before.get(key), after.get(key)):
                return False
    return True


def difference(state, wanted):
    lines = [f"{path!r} is missing" for path in sorted(wanted.keys() - state.keys())]
    lines += [f"{path!r} is there" for path in sorted(state.keys() - wanted.keys())]
    for path in sorted(state.keys() & wanted.keys()):
        for key in sorted(state[path].keys() | wanted[path].keys()):
            is_, want = state[path].get(key), wanted[path].get(key)
            if is_ != want:
                lines.append(f"{path!r}: {key} {_show(is_, want)}")
    return "; ".join(lines) or "the same"


def _show(is_, want):
    if isinstance(is_, bytes) and isinstance(want, bytes):
        at = next((i for i, (a, b) in enumerate(zip(is_, want)) if a != b), min(len(is_), len(want)))
        return f"differs from byte {at} on ({len(is_)} and {len(want)} bytes)"
    return f"is {is_!r}, not {want!r}"
