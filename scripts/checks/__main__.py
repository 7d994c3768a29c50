"""Runs the checks that are named, or all. Usage: PYTHONPATH=scripts python -m checks [NAME ...]"""

import sys
from pathlib import Path

from . import environment, headers, includes, posting, text

CHECKS = {
    "includes": includes.check,
    "environment": environment.check,
    "posting": posting.check,
    "text": text.check,
    "headers": headers.check,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        print(f"no check is called {', '.join(unknown)}; there are {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    root = Path(__file__).resolve().parents[2]
    failed = False
    for name in names or CHECKS:
        findings = CHECKS[name](root)
        failed |= any(finding.is_error for finding in findings)
        for finding in findings:
            print(finding)
        print(f"  {name}: {len(findings)} finding{'' if len(findings) == 1 else 's'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
