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

CONTEXT = "turn_context_"  # a parameter that the model is not told of


def make_tool(path: str) -> Tool[TurnContext]:
    """The tool at `package.module:function`. Raise WrongKey for what is not there or cannot be one.

    A first parameter of the type TurnContext gets the turn; the model fills in the others.
    """
    fn = _found(path)
    try:
        return Tool(_called(fn), takes_ctx=True)
    except Exception as error:
        raise WrongKey("tools", f"has {path}, which cannot be a tool: {describe(error, 300)}") from error


def _found(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise WrongKey("tools", f"has {path}, which cannot be imported: {describe(error, 300)}") from error
    if not inspect.isroutine(found):
        raise WrongKey("tools", f"has {path}, which is not a function")
    fn: Callable[..., Any] = found
    return fn


def _takes(fn: Callable[..., Any]) -> type[Any] | None:
    """What its first parameter wants to know of the run: TurnContext or RunContext; None: nothing."""
    first = next(iter(inspect.signature(fn).parameters), None)
    wanted = get_type_hints(fn).get(first) if first is not None else None
    if wanted is TurnContext:
        return TurnContext
    return RunContext if wanted is RunContext or getattr(wanted, "__origin__", None) is RunContext else None


def _called(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` as the library calls it: with the run's context first, which it knows by its type."""
    takes = _takes(fn)

    def arguments(context: RunContext[TurnContext], args: tuple[Any, ...]) -> tuple[Any, ...]:
        if takes is None:
            return args
        return (context.deps if takes is TurnContext else context, *args)

    async def acall(context: RunContext[TurnContext], *args: Any, **named: Any) -> Any:
        return await fn(*arguments(context, args), **named)

    def call(context: RunContext[TurnContext], *args: Any, **named: Any) -> Any:
        with context.deps.in_other_thread():
            return fn(*arguments(context, args), **named)

    return _disguised(acall if inspect.iscoroutinefunction(fn) else call, fn, takes_one=takes is not None)


def _disguised(call: Callable[..., Any], fn: Callable[..., Any], *, takes_one: bool) -> Callable[..., Any]:
    """Give it the name, words and parameters of `fn`, from which the model is told what the tool takes."""
    signature, hints = inspect.signature(fn), get_type_hints(fn, include_extras=True)
    own = list(signature.parameters.values())
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    first = inspect.Parameter(own[0].name if takes_one else CONTEXT, kind, annotation=RunContext[TurnContext])
    functools.update_wrapper(call, fn)
    del call.__dict__["__wrapped__"]  # the library would look through to the user's own parameters
    call.__annotations__ = {**hints, first.name: RunContext[TurnContext]}
    call.__dict__["__signature__"] = signature.replace(parameters=[first, *own[takes_one:]])
    return call
