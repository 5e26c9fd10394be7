"""Hold a value against a JSON schema: a script of its own, since a schema's patterns can take for ever.

stdin: {"schema": …, "value": …}. It exits with 0 when the value fits, else with 1 and says why on stdout.
"""

from __future__ import annotations

import json
import sys

MAX_ERRORS = 10
MAX_CHARS = 500


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
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
