"""Print the lines of each room, and their change since another commit: python .ci/lines.py [COMMIT]."""

import subprocess
import sys
from collections import Counter

KINDS = (".py", ".pyi", ".pyx", ".pxd", ".h")


def git(*arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def room(path: str) -> str:
    """Return the folder of a file, by two names in the package and in src_pyx."""
    parts = path.split("/")
    depth = 2 if parts[0] in ("dmq_fast", "src_pyx") else 1
    return "/".join(parts[:depth]) if len(parts) > depth else "/".join(parts[:-1]) or "."


def lines(commit: str) -> Counter[str]:
    """Return the number of lines of every room in a commit; the empty tree is compared with it."""
    empty = git("hash-object", "-t", "tree", "/dev/null").strip()
    counts: Counter[str] = Counter()
    for row in git("diff", "--numstat", "--no-renames", empty, commit).splitlines():
        added, _, path = row.split("\t")
        if path.endswith(KINDS):
            counts[room(path)] += int(added)
            counts["all"] += int(added)
    return counts


def main() -> None:
    """Compare HEAD with the commit that was given, or with the one before it."""
    now = lines("HEAD")
    base = sys.argv[1] if len(sys.argv) > 1 else "HEAD~1"
    known = subprocess.run(["git", "rev-parse", "--quiet", "--verify", base], capture_output=True).returncode == 0
    before = lines(base) if known else now
    for name in sorted(now | before, key=lambda name: (name == "all", name)):
        print(f"{name:30}{now[name]:8,}{now[name] - before[name]:+8,}")


if __name__ == "__main__":
    main()
