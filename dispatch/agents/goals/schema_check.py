"""Hold a value against a JSON schema: a script of its own, since a schema's patterns can take for ever.

stdin: {"schema": …, "value": …}. It exits with 0 when the value fits, with 3 when it does not, and says why on stdout;
with another code, Python's own for an exception among them, it could not tell.
"""

from __future__ import annotations

import json
import sys

MAX_ERRORS = 10
MAX_CHARS = 500
UNFIT = 3
UNKNOWN = 4


def main() -> int:
    from jsonschema import Draft202012Validator
    from referencing import Registry

    given = json.load(sys.stdin)
    # a registry of its own, which is empty: nothing is fetched
    validator = Draft202012Validator(given["schema"], registry=Registry())
    count = 0
    for error in validator.iter_errors(given["value"]):
        count += 1
        if count <= MAX_ERRORS:
            print(f"{error.json_path}: {error.message[:MAX_CHARS]}")
    return UNFIT if count else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:
        print(f"{type(error).__name__}: {str(error)[:MAX_CHARS]}")
        sys.exit(UNKNOWN)
