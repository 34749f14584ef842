"""Errors that a cell answers, in the words of the engine it plays."""

from __future__ import annotations

from typing import Any

from headrace_lab.cell.versions import Dialect

_TYPES = {
    400: "BadRequestError",
    404: "NotFoundError",
    413: "BadRequestError",
    503: "ServiceUnavailableError",
}


class ApiError(Exception):
    """A request that gets an error; `param` names the field at fault, if there is one."""

    def __init__(self, code: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param

    def body(self, dialect: Dialect) -> dict[str, Any]:
        """The JSON body."""
        error = {
            "message": self.message,
            "type": _TYPES.get(self.code, "InternalServerError"),
            "param": self.param,
            "code": self.code,
        }
        return {"error": error} if dialect.nested_errors else {"object": "error", **error}


def too_long(prompt_tokens: int, max_tokens: int, limit: int, dialect: Dialect) -> ApiError:
    """The refusal of a request that does not fit in `limit` tokens."""
    total = prompt_tokens + max_tokens
    if not dialect.nested_errors:
        return ApiError(
            400,
            f"This model's maximum context length is {limit} tokens. However, you requested {total} tokens "
            f"({prompt_tokens} in the messages, {max_tokens} in the completion). Please reduce the length "
            "of the messages or completion.",
        )
    return ApiError(
        400,
        f"This model's maximum context length is {limit} tokens. However, you requested {max_tokens} output "
        f"tokens and your prompt contains at least {prompt_tokens} input tokens, for a total of at least "
        f"{total} tokens. Please reduce the length of the input prompt or the number of requested output "
        "tokens.",
        "input_tokens",
    )
