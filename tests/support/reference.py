"""Make docs/reference anew from the code: `python -m tests.support.reference`.

A test compares what stands there with what this module would write.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import django

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "reference"
NOTE = "<!-- Made from the code by `python -m tests.support.reference`: change that, not this page. -->\n"

DISPATCH_COMMANDS = (
    "run_dispatch_worker",
    "dispatch",
    "jobs",
    "schedules",
    "webhooks",
    "check_dispatch",
    "prune_dispatch",
    "dispatch_demo",
    "run_mcp_server",
)
FLEET_COMMANDS = ("up", "fleet", "issue_api_key", "api_keys", "health_schema")


def cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def commands() -> Iterator[str]:
    from django.core.management import load_command_class

    yield "# Commands\n"
    yield "Each is `python manage.py NAME`, or `fleetsite NAME` where the wheel is installed; Django's are there too."
    yield "What they do, with examples: [Commands of a terminal](../cli.md), [Operations](../operations.md).\n"
    for app, names in (("dispatch", DISPATCH_COMMANDS), ("fleet", FLEET_COMMANDS)):
        for name in names:
            command = load_command_class(app, name)
            yield from _command(name, command.help, command.create_parser("manage.py", name))


def _command(name: str, help_text: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## `{name}`\n"
    yield f"{' '.join(help_text.split())}\n"
    yield from _arguments(parser)
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for verb, sub in action.choices.items():
            yield f"### `{name} {verb}`\n"
            if summaries.get(verb):
                yield f"{' '.join(summaries[verb].split())}\n"
            yield from _arguments(sub)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    rows = [_argument(action) for action in parser._actions if _is_ours(action)]
    if rows:
        yield from table(("argument", "default", "meaning"), rows)


DJANGOS = {
    "help",
    "version",
    "verbosity",
    "settings",
    "pythonpath",
    "traceback",
    "no_color",
    "force_color",
    "skip_checks",
}


def _is_ours(action: argparse.Action) -> bool:
    return action.dest not in DJANGOS and not isinstance(action, argparse._SubParsersAction)


def _argument(action: argparse.Action) -> tuple[str, str, str]:
    value = "" if action.nargs == 0 else str(action.metavar or action.dest).upper()
    name = ", ".join(action.option_strings) or str(action.metavar or action.dest).upper()
    written = f"`{cell(f'{name} {value}')}`" if value and action.option_strings else f"`{name}`"
    default = action.default
    shown = "" if default in (None, False, "", [], argparse.SUPPRESS) or callable(default) else f"`{cell(default)}`"
    meaning = cell((action.help or "") % {"default": default} if "%(" in (action.help or "") else action.help or "")
    if action.choices is not None:
        meaning = f"{meaning} ({', '.join(map(str, action.choices))})".strip()
    return written, shown, meaning


def states() -> Iterator[str]:
    from dispatch import states as life

    yield "# States\n"
    yield "The statuses of a job, what follows what, and the words that say why."
    yield "The life in a picture: [Architecture](../architecture.md).\n"
    yield "## Statuses of a work item\n"
    rows = [
        (
            f"`{status}`",
            f"`{life.public_status(status)}`",
            "final" if status in life.TERMINAL else "holds a lease" if status in life.LIVE else "",
            ", ".join(f"`{after}`" for after in life.STATUSES if after in life.TRANSITIONS[status]) or "nothing",
        )
        for status in life.STATUSES
    ]
    yield from table(("stored", "callers see", "", "goes to"), rows)
    yield "From a final status a manual retry alone leads back.\n"
    yield "## Reasons of `explain`\n"
    yield "The same words refuse a claim. What each means: [Operations](../operations.md#when-a-turn-does-not-run).\n"
    yield ", ".join(f"`{reason}`" for reason in life.REFUSALS) + "\n"
    yield "## Error codes of a job\n"
    yield "`error.code` of a job that did not succeed.\n"
    codes = [value for name, value in vars(life.ErrorCode).items() if name.isupper()]
    yield ", ".join(f"`{code}`" for code in codes) + "\n"
    yield "## Priorities\n"
    yield ", ".join(f"`{priority}`" for priority in life.PRIORITIES)
    yield f"\nA queued session gains one step in {life.AGING_STEP_S} seconds.\n"


def errors() -> Iterator[str]:
    from dispatch import errors as refusals

    yield "# Errors\n"
    yield 'Every refusal over REST and MCP is `{"status": "error", "code", "message", "fields"}`,'
    yield "sometimes with more facts; the Python client raises it.\n"
    found = [
        one
        for one in vars(refusals).values()
        if isinstance(one, type) and issubclass(one, refusals.DispatchError) and one.http_status != 500
    ]
    rows = sorted(
        {(f"`{one.code}`", str(one.http_status), cell(one.__doc__)) for one in found}, key=lambda row: (row[1], row)
    )
    yield from table(("code", "HTTP", "says"), rows)


SERIES = {
    "fleet/metrics.py": (
        "Of the web server",
        "`GET /metrics`, with a platform key: what the stores say of the whole fleet.",
    ),
    "dispatch/worker/observed.py": ("Of a worker process", "`--metrics-port`: what that process saw itself."),
    "dispatch/transports/kafka/metrics.py": ("Of a process that uses Kafka", "Beside the others of that process."),
}
TYPES = {
    "Counter": "counter",
    "CounterMetricFamily": "counter",
    "Gauge": "gauge",
    "GaugeMetricFamily": "gauge",
    "Histogram": "histogram",
}


def metrics() -> Iterator[str]:
    yield "# Metrics\n"
    yield "A value that cannot be read is absent, never 0. What to alert on: [the handbook](../handbook/index.md).\n"
    for source, (title, lead) in SERIES.items():
        yield f"## {title}\n"
        yield f"{lead}\n"
        yield from table(("series", "type", "labels", "meaning"), sorted(series_of(ROOT / source)))
    yield "A web server tells of its requests and statements too, under the names of django-prometheus:"
    yield "`django_http_…`, `django_db_…`."


def series_of(source: Path) -> Iterator[tuple[str, ...]]:
    """The series that a module makes, read from its text: scraping needs the stores, and this must not."""
    tree = ast.parse(source.read_text())
    texts = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or getattr(node.func, "id", None) not in TYPES or len(node.args) < 2:
            continue
        kind = TYPES[cast(ast.Name, node.func).id]
        labels = next((word.value for word in node.keywords if word.arg == "labels"), None)
        if labels is None and len(node.args) > 2:
            labels = node.args[2]
        names = ast.literal_eval(labels) if labels is not None else []
        name = _text(node.args[0], texts) + ("_total" if kind == "counter" else "")
        yield f"`{name}`", kind, ", ".join(f"`{label}`" for label in names), cell(_text(node.args[1], texts))


def _text(node: ast.expr, texts: Mapping[str, object]) -> str:
    """What a literal says; the names that stand in it are those of the module's own constants."""
    if not isinstance(node, ast.JoinedStr):
        return str(ast.literal_eval(node))
    parts = (part.value if isinstance(part, ast.Constant) else texts[_named(part)] for part in node.values)
    return "".join(map(str, parts))


def _named(part: ast.expr) -> str:
    return cast(ast.Name, cast(ast.FormattedValue, part).value).id


Schema = dict[str, Any]


def rest() -> Iterator[str]:
    from drf_spectacular.generators import SchemaGenerator

    document = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    yield "# REST\n"
    yield "Every address with its parameters, bodies and answers; `/api/schema` is the same for programs,"
    yield "`/api/docs` to click."
    yield "How they are used: [REST](../rest.md).\n"
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            yield from _operation(f"{verb.upper()} {path}", operation)
    yield "## Bodies\n"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield from _schema(name, schema)


def _operation(title: str, operation: Schema) -> Iterator[str]:
    yield f"## `{title}`\n"
    yield f"{cell(operation.get('summary', ''))}.\n"
    described = " ".join(operation.get("description", "").split())
    if described and described.rstrip(".") != operation.get("summary"):
        yield f"{described}\n"
    parameters = [
        (f"`{one['name']}`", one["in"], kind_of(one["schema"]), cell(one.get("description", "")))
        for one in operation.get("parameters", [])
    ]
    if parameters:
        yield from table(("parameter", "in", "is", "meaning"), parameters)
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body:
        yield f"Body: {kind_of(body)}\n"
    yield from table(
        ("answer", "body"), [_answer(status, one) for status, one in sorted(operation["responses"].items())]
    )


def _answer(status: str, answer: Schema) -> tuple[str, str]:
    content = answer.get("content", {})
    bodies = {kind_of(one.get("schema", {})) for one in content.values()}
    return status, " or ".join(sorted(bodies)) or "none"


def _schema(name: str, schema: Schema) -> Iterator[str]:
    yield f"### {name}\n"
    if schema.get("description"):
        yield f"{cell(schema['description'])}\n"
    if "properties" not in schema:
        yield f"{kind_of(schema)}\n"
        return
    required = set(schema.get("required", []))
    rows = [
        (f"`{field}`", kind_of(one), "" if field in required else "may be left out", cell(one.get("description", "")))
        for field, one in schema["properties"].items()
    ]
    yield from table(("field", "is", "", "meaning"), rows)


def kind_of(schema: Schema) -> str:
    """A schema in a few words; another one by its name, with a link on the page of REST."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    for joint in ("oneOf", "anyOf", "allOf"):
        if joint in schema:
            return " or ".join(dict.fromkeys(kind_of(one) for one in schema[joint]))
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    kind = schema.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {kind_of(schema.get('items', {}))}"
    return str(schema.get("format") or kind)


def mcp() -> Iterator[str]:
    from dispatch.mcp.schemas import tools

    yield "# MCP\n"
    yield "The tools of `manage.py run_mcp_server`. How they are used: [MCP](../mcp.md).\n"
    for tool in tools():
        schema = tool["inputSchema"]
        required = set(schema.get("required", []))
        yield f"## `{tool['name']}`\n"
        yield f"{' '.join(tool['description'].split())}\n"
        rows = [
            (f"`{name}`", "required" if name in required else "", _plain_kind(one), cell(one.get("description", "")))
            for name, one in schema["properties"].items()
        ]
        yield from table(("argument", "", "is", "meaning"), rows)


def _plain_kind(schema: Schema) -> str:
    return re.sub(r"\[(\w+)\]\(#\w+\)", "object", kind_of(schema))


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "commands.md": commands,
    "errors.md": errors,
    "mcp.md": mcp,
    "metrics.md": metrics,
    "rest.md": rest,
    "states.md": states,
}


def render(make: Callable[[], Iterator[str]]) -> str:
    return NOTE + "\n" + "\n".join(make()).rstrip() + "\n"


def main() -> None:
    django.setup()
    DOCS.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (DOCS / name).write_text(render(make))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetsite.settings")
    main()
