"""A user's functions as the tools of a model."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from pydantic_ai import RunContext, Tool

from dispatch.agents.clean import describe
from dispatch.agents.command.spec import WrongKey
from dispatch.agents.context import TurnContext


def make_tool(path: str) -> Tool[TurnContext]:
    """The tool at `package.module:function`. Raise WrongKey for what is not there or cannot be one.

    A first parameter of the type TurnContext gets the turn; the model fills in the others.
    """
    fn = _found(path)
    try:
        return Tool(_called(fn), takes_ctx=_takes(fn) is not None)
    except Exception as error:
        raise WrongKey("tools", f"has {path}, which cannot be a tool: {describe(error, 300)}") from error


def _found(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    try:
        found = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except Exception as error:
        raise WrongKey("tools", f"has {path}, which cannot be imported: {describe(error, 300)}") from error
    if not inspect.isfunction(found) and not inspect.ismethod(found):
        raise WrongKey("tools", f"has {path}, which is not a function")
    return found


def _takes(fn: Callable[..., Any]) -> type[Any] | None:
    """What its first parameter wants to know of the run: TurnContext or RunContext; None: nothing."""
    first = next(iter(inspect.signature(fn).parameters), None)
    wanted = get_type_hints(fn).get(first) if first is not None else None
    if wanted is TurnContext:
        return TurnContext
    return RunContext if wanted is RunContext or getattr(wanted, "__origin__", None) is RunContext else None


def _called(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` as it is called by the library, which knows RunContext; a sync one gives back what its thread holds."""
    takes = _takes(fn)
    if takes is None and inspect.iscoroutinefunction(fn):
        return fn
    signature = inspect.signature(fn)
    parameters = list(signature.parameters.values())
    if takes is TurnContext:
        parameters[0] = parameters[0].replace(annotation=RunContext[TurnContext])

    def handed_on(context: RunContext[TurnContext], args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (context.deps if takes is TurnContext else context, *args) if takes else args

    if inspect.iscoroutinefunction(fn):

        async def call(context: Any, *args: Any, **named: Any) -> Any:
            return await fn(*handed_on(context, args), **named)

    else:

        def call(context: Any, *args: Any, **named: Any) -> Any:
            try:
                return fn(*handed_on(context, args), **named)
            finally:
                context.deps.let_go()

    functools.update_wrapper(call, fn)
    hints = get_type_hints(fn, include_extras=True)
    if takes is None:
        context = inspect.Parameter(
            "turn_context_", inspect.Parameter.POSITIONAL_ONLY, annotation=RunContext[TurnContext]
        )
        parameters.insert(0, context)
    hints[parameters[0].name] = RunContext[TurnContext]
    call.__annotations__ = hints
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    del call.__wrapped__  # type: ignore[attr-defined]  # the library would look through to the user's own signature
    return call
