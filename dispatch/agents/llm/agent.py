"""The agent that asks a model: an async function of its turn, so that waiting for answers takes no thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from dispatch.agents.command.spec import Ground, WrongKey
from dispatch.agents.context import TurnContext
from dispatch.agents.control import Discard
from dispatch.agents.llm.spec import ModelSpec

if TYPE_CHECKING:
    from dispatch.agents.llm.conversation import Conversations

LIBRARY = "pydantic_ai"
NOT_INSTALLED = "needs the package pydantic-ai-slim: pip install -r requirements-llm.txt"


class ModelAgent:
    """Called with a turn: asks the model with the session's conversation, and returns its answer."""

    def __init__(self, spec: ModelSpec, ground: Ground, name: str) -> None:
        self.__doc__ = f"Asks the model {spec.model}."
        self.spec, self._ground, self._name = spec, ground, name
        self._lock = threading.Lock()
        self._conversations: Conversations | None = None

    def prepare(self) -> None:
        """Load the library, the tools and the key, which only a process that runs the agent needs. Raise WrongKey."""
        with self._lock:
            if self._conversations is None:
                self._conversations = self._made()

    def _made(self) -> Conversations:
        try:
            from dispatch.agents.llm.conversation import Conversations  # an extra, loaded where it is used
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith((LIBRARY, "openai")):
                raise
            raise WrongKey("kind", f'is "llm", which {NOT_INSTALLED}') from error
        return Conversations(self.spec, self._name, self._key())

    def _key(self) -> str | None:
        name = self.spec.api_key_env
        if name is None:
            return None
        try:
            key = self._ground.secret(name)
        except ValueError as error:
            raise WrongKey("api_key_env", f"names {name}, which cannot be used: {error}") from None
        if not key:
            raise WrongKey("api_key_env", f"names {name}, and neither it nor {name}_FILE is set")
        return key

    async def __call__(self, turn: TurnContext) -> Any:
        try:
            self.prepare()
        except WrongKey as error:
            raise Discard(f"agents.{self._name}.{error}") from None
        assert self._conversations is not None
        return await self._conversations.run(turn)
