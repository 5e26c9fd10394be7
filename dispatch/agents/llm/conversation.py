"""One agent's models and tools, made once for each event loop, and one turn's run of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable
from typing import Any
from weakref import WeakKeyDictionary

from jsonschema import Draft202012Validator
from pydantic_ai import Agent, ModelRetry, RunContext, StructuredDict
from pydantic_ai.exceptions import AgentRunError, UserError
from pydantic_ai.messages import (
    AgentStreamEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models import Model
from referencing import Registry

from dispatch.agents.context import TurnContext
from dispatch.agents.control import Discard, Result
from dispatch.agents.llm import history
from dispatch.agents.llm.failures import raise_for
from dispatch.agents.llm.model import TURN, CountedModel, make_model, settings_of
from dispatch.agents.llm.spec import ModelSpec
from dispatch.agents.llm.spoken import LAST_WORDS_S, Spoken
from dispatch.agents.llm.tools import make_tool

MAX_ERRORS, MAX_CHARS = 5, 300  # of what an output is told to be wrong

_Made = tuple[CountedModel, Agent[TurnContext, Any]]


class Conversations:
    """Runs turns. A client's connections belong to a loop: they are shared by its turns, and closed with the last."""

    def __init__(self, spec: ModelSpec, name: str, key: str | None, model: Model | None = None) -> None:
        """Raise WrongKey for a model or a tool that cannot be had. `model` stands in for the one that is asked."""
        self._spec, self._name, self._key, self._model = spec, name, key, model
        self._tools = [make_tool(path) for path in spec.tools]
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, _Made] = WeakKeyDictionary()
        self._make()

    def _make(self) -> _Made:
        spec = self._spec
        schema = spec.output_schema
        model = CountedModel(self._model or make_model(spec, self._key), spec)
        agent: Agent[TurnContext, Any] = Agent(
            model,
            output_type=str if schema is None else StructuredDict(dict(schema)),
            instructions=spec.instructions or None,
            deps_type=TurnContext,
            name=self._name,
            model_settings=settings_of(spec),
            retries=spec.retries,
            tools=self._tools,
        )
        if schema is not None:
            agent.output_validator(_fitting(dict(schema)))
        return model, agent

    def _here(self) -> _Made:
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._made[loop] = self._make()
        return self._made[loop]

    async def run(self, turn: TurnContext) -> Result:
        """Ask the model until it has answered; write the conversation into the turn's state."""
        earlier = history.read(turn.state)
        model, agent = self._here()
        TURN.set(turn)
        spoken = Spoken(turn)
        try:
            async with model:  # which closes its connections when the last turn leaves it
                asked = turn.goal.as_text() if turn.goal else turn.task
                done = await agent.run(asked, deps=turn, message_history=earlier, event_stream_handler=_teller(spoken))
            await spoken.finish()
        except BaseException as error:
            await spoken.finish(within_s=LAST_WORDS_S)
            if isinstance(error, AgentRunError | UserError):
                raise_for(error)
            raise
        return self._answered(turn, done)

    def _answered(self, turn: TurnContext, done: Any) -> Result:
        last: ModelResponse = done.response
        if last.finish_reason == "content_filter":
            raise Discard("the provider's content filter cut the answer off")
        history.write(
            turn.state,
            done.new_messages(),
            most_turns=self._spec.history_turns,
            most_bytes=self._spec.history_bytes,
        )
        cut = "the answer was cut off at the model's limit of tokens" if last.finish_reason == "length" else None
        return Result(done.output, message=cut)


def _fitting(schema: dict[str, Any]) -> Callable[[Any], Any]:
    """The library tells the model of the schema and does not look whether it is kept."""
    validator = Draft202012Validator(schema, registry=Registry())  # an empty one: nothing is fetched

    def fits(output: Any) -> Any:
        wrong = [f"{error.json_path}: {error.message[:MAX_CHARS]}" for error in validator.iter_errors(output)]
        if wrong:
            raise ModelRetry("; ".join(wrong[:MAX_ERRORS]))
        return output

    return fits


def _teller(spoken: Spoken) -> Any:
    """Hands on what happens in a run."""

    async def tell(_: RunContext[TurnContext], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for event in events:
            match event:
                case (
                    PartStartEvent(part=TextPart(content=text))
                    | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
                ):
                    if text:
                        spoken.text(text)
                case FunctionToolCallEvent(part=part):
                    spoken.tool_called(part.tool_name)
                case FunctionToolResultEvent(part=part):
                    spoken.tool_ended(part.tool_name, well=part.outcome == "success")

    return tell
