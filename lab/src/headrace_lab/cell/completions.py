"""The routes that answer prompts."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from headrace_lab.cell.answers import DONE, Answer
from headrace_lab.cell.driver import EngineDriver, Ticket
from headrace_lab.cell.errors import ApiError, too_long
from headrace_lab.cell.questions import Question, read_chat, read_completion
from headrace_lab.cell.settings import CellSettings
from headrace_lab.cell.versions import Dialect
from headrace_lab.engine import ContextLengthError, Finish, Request
from headrace_shared.clock import Clock

SSE_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8"}


@dataclass(frozen=True, slots=True)
class Completions:
    """Answers /v1/completions and /v1/chat/completions from the engine."""

    settings: CellSettings
    dialect: Dialect
    driver: EngineDriver
    clock: Clock
    numbers: itertools.count[int]
    chance: random.Random

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions."""
        return await self._answer(request, read_completion)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        return await self._answer(request, read_chat)

    async def _answer(
        self, request: web.Request, read: Callable[[bytes, float, int], Question]
    ) -> web.StreamResponse:
        engine = self.settings.engine
        block = engine.prefix_block_tokens if engine.prefix_caching else 0
        question = read(await request.read(), self.settings.bytes_per_token, block)
        if question.model not in ("", self.settings.model):
            raise ApiError(404, f"The model `{question.model}` does not exist.", "model")
        if self.chance.random() < self.settings.refuse_share:
            raise ApiError(400, "This engine cannot serve the request as it is configured.")
        name = f"{'chatcmpl' if question.chat else 'cmpl'}-{self.settings.cell_id}-{next(self.numbers)}"
        answer = Answer(name, self.settings.model, self.clock.wall_ns() // 1_000_000_000, question.chat)
        ticket = self._submit(name, question)
        try:
            if question.stream:
                return await self._stream(request, answer, ticket, question)
            finishes = await _collect(ticket, len(question.choices))
            return web.json_response(answer.whole(finishes))
        finally:
            # Also the way out when the client has gone: what it asked for is aborted.
            ticket.close()

    def _submit(self, name: str, question: Question) -> Ticket:
        try:
            return self.driver.submit(
                [
                    Request(
                        f"{name}-{i}", tokens, question.max_tokens, question.ignore_eos, question.prefix(i)
                    )
                    for i, tokens in enumerate(question.choices)
                ]
            )
        except ContextLengthError as error:
            raise too_long(error.prompt_tokens, error.max_tokens, error.limit, self.dialect) from error

    async def _stream(
        self, request: web.Request, answer: Answer, ticket: Ticket, question: Question
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=SSE_HEADERS)
        # Writing to a client that has gone is no error here: its request is aborted by the caller.
        with contextlib.suppress(ConnectionError):
            await response.prepare(request)  # the headers go out before the first token is there
            finishes = []
            async for index, output in ticket:
                head = answer.head(index) if question.chat and output.number == 1 else b""
                await response.write(head + answer.token(index, output.finish))
                if output.finish is not None:
                    finishes.append(output.finish)
            if question.include_usage:
                await response.write(answer.usage(finishes))
            await response.write(DONE)
            await response.write_eof()
        return response


async def _collect(ticket: Ticket, choices: int) -> list[Finish]:
    finishes: dict[int, Finish] = {}
    async for index, output in ticket:
        if output.finish is not None:
            finishes[index] = output.finish
    return [finishes[index] for index in range(choices)]
