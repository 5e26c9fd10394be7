"""From the words of agents.toml to a model of pydantic-ai, whose requests are counted against the turn's budget."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from decimal import Decimal
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelConnectionError, ModelHTTPError, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse, infer_model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.settings import ModelSettings

from dispatch.agents.command.spec import WrongKey
from dispatch.agents.context import TurnContext
from dispatch.agents.control import BudgetExceeded
from dispatch.agents.llm.spec import ModelSpec
from dispatch.agents.patience import patiently, to_its_end
from dispatch.spending import ModelSpend

NO_KEY = "none"  # the client wants one; servers without keys look at none
NOT_SENT = ("pool", "connect")  # the phases of a connection before anything was sent

# The turn whose run asks: one model serves all the turns of an agent on a loop.
TURN: ContextVar[TurnContext] = ContextVar("llm_turn")


def make_model(spec: ModelSpec, key: str | None) -> Model:
    """Raise WrongKey for a provider that is not known, is not installed, or lacks its key."""
    if spec.base_url is not None:
        server = OpenAICompatibleProvider("openai-compatible", base_url=spec.base_url, api_key=key or NO_KEY)
        return OpenAIChatModel(spec.model, provider=server)
    try:
        return infer_model(spec.model, provider_factory=lambda name: _provider(name, key))
    except (UserError, ValueError, ImportError) as error:
        raise WrongKey("model", f"cannot be used: {_sentence(error)}") from None


def _provider(name: str, key: str | None) -> Provider[Any]:
    if key is None:
        return infer_provider(name)
    made = infer_provider_class(name)
    if "api_key" not in inspect.signature(made.__init__).parameters:
        raise WrongKey("api_key_env", f"is given, and the provider {name} takes no key")
    return made(api_key=key)  # type: ignore[call-arg]  # each provider has its own arguments


def _sentence(error: Exception) -> str:
    """Its first sentence: what follows recommends other things."""
    return str(error).partition(". ")[0].partition("\n")[0].rstrip(".")[:300]


def settings_of(spec: ModelSpec) -> ModelSettings:
    given = dict(spec.settings)
    # the client itself would try again, behind the budget's back
    settings: Any = {"max_retries": 0, "timeout": given.pop("timeout_s"), **given}
    made: ModelSettings = settings
    return made


class CountedModel(WrapperModel):
    """Counts each request before it is sent and what it spent after it, under the fence of the turn that asks.

    A request that the budget does not allow any more is not sent: BudgetExceeded.
    """

    def __init__(self, wrapped: Model, spec: ModelSpec) -> None:
        super().__init__(wrapped)
        self._spec = spec

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        await self._begin()
        spend = ModelSpend()
        try:
            response = await self.wrapped.request(messages, model_settings, model_request_parameters)
            spend = self._spend(response, whole=True)
        except BaseException as error:
            spend = ModelSpend(refused=_not_spent(error))
            raise
        finally:
            await to_its_end(patiently(TURN.get().model_ended, self._spec.model, spend))
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        await self._begin()
        stream: StreamedResponse | None = None
        spend = ModelSpend()
        try:
            async with self.wrapped.request_stream(
                messages, model_settings, model_request_parameters, run_context
            ) as stream:
                yield stream
            spend = self._spend(stream.get(), whole=True)
        except BaseException as error:
            broken = ModelSpend(refused=_not_spent(error))
            spend = broken if stream is None else self._spend(stream.get(), whole=False)
            raise
        finally:
            await to_its_end(patiently(TURN.get().model_ended, self._spec.model, spend))

    async def _begin(self) -> None:
        used_up = await patiently(TURN.get().model_begins, self._spec.model, self._spec.budget)
        if used_up is not None:
            key, limit, spent = used_up
            what = "requests" if key == "max_requests" else "tokens"
            whose = "this session" if key.startswith("session") else "this turn"
            raise BudgetExceeded(f"{key} is {limit:,}, and {whose} has spent {spent:,} {what}; no more was asked")

    def _spend(self, response: ModelResponse, *, whole: bool) -> ModelSpend:
        usage = response.usage
        return ModelSpend(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            tool_calls=sum(
                isinstance(part, ToolCallPart) and part.tool_name in self._spec.tool_names for part in response.parts
            ),
            cost=self._cost(response) if whole else None,
        )

    def _cost(self, response: ModelResponse) -> Decimal | None:
        usage = response.usage
        if usage.unmeasured_requests or not usage.total_tokens:
            return None
        if self._spec.prices is not None:
            return self._spec.prices.cost(usage.input_tokens, usage.output_tokens)
        if self._spec.base_url is not None:
            return None  # a model of a well-known name on a server of one's own has another price
        try:
            return response.cost().total_price
        except (LookupError, ValueError, AssertionError):
            return None


def _not_spent(error: BaseException) -> bool:
    """Whether the request was refused before anything was made of it, or never arrived."""
    if isinstance(error, ModelHTTPError):
        return not error.in_stream
    return isinstance(error, ModelConnectionError) and error.phase in NOT_SENT
