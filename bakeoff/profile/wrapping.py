"""`wrap`: puts a context around each call of a function, coroutine function or generator function."""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

from bakeoff.profile.profiler import installed, tell_unheard, unheard
from bakeoff.profile.ranges import NOTHING, Unit
from bakeoff.profile.session import current_session

F = TypeVar("F", bound=Callable[..., Any])
Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Opened = Callable[[Args, Kwargs, bool], AbstractContextManager[object] | None]
"""Returns the context for a call with these arguments, or None for no context. The last argument says whether the call
had one before, as when a generator is resumed."""


def wrap(function: F, opened: Opened, each_time: bool = False, always: bool = False) -> F:
    """Return a function of the same kind, such as a coroutine function, with a context around each call.

    With `each_time`, a generator has a context around each resumption, else one around all of it. If a context has an
    attribute `result`, that is set to what the call returns.

    If no profiler is installed and no session is open, a plain function is called as it is, without asking `opened`,
    unless `always` is set.
    """
    if inspect.isasyncgenfunction(function):
        return cast(F, _async_generator(function, opened, each_time))
    if inspect.isgeneratorfunction(function):
        return cast(F, _generator(function, opened, each_time))
    if inspect.iscoroutinefunction(function):
        return cast(F, _coroutine(function, opened))

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not (always or installed) and current_session.get() is None:
            if unheard:
                tell_unheard()
            return function(*args, **kwargs)
        context = opened(args, kwargs, False)
        if context is None:
            return function(*args, **kwargs)
        with context as entered:
            return _returned(entered, function(*args, **kwargs))

    return cast(F, wrapped)


def _coroutine(function: Callable[..., Any], opened: Opened) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        context = opened(args, kwargs, False)
        if context is None:
            return await function(*args, **kwargs)
        with context as entered:
            return _returned(entered, await function(*args, **kwargs))

    return wrapped


def _generator(function: Callable[..., Any], opened: Opened, each_time: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        def context(again: bool, each: bool = True) -> AbstractContextManager[object]:
            return (opened(args, kwargs, again) if each == each_time else None) or NOTHING

        with context(again=False, each=False) as whole:
            inner: Generator[Any, Any, Any] = function(*args, **kwargs)
            sent: Any = None
            thrown: BaseException | None = None
            again = False
            while True:
                with context(again) as within:
                    try:
                        item = inner.send(sent) if thrown is None else inner.throw(thrown)
                    except StopIteration as stop:
                        _made_nothing(within)
                        return _returned(whole, stop.value)
                    except BaseException:
                        _made_nothing(within)
                        raise
                again, sent, thrown = True, None, None
                try:
                    sent = yield item
                except GeneratorExit:
                    with context(again) as within:
                        _made_nothing(within)
                        inner.close()
                    raise
                except BaseException as error:  # noqa: BLE001  # it is thrown into the generator, which may handle it
                    thrown = error

    return wrapped


def _async_generator(function: Callable[..., Any], opened: Opened, each_time: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapped(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with (None if each_time else opened(args, kwargs, False)) or NOTHING:
            inner: AsyncGenerator[Any, Any] = function(*args, **kwargs)
            sent: Any = None
            thrown: BaseException | None = None
            again = False
            while True:
                with (opened(args, kwargs, again) if each_time else None) or NOTHING as within:
                    try:
                        item = await (inner.asend(sent) if thrown is None else inner.athrow(thrown))
                    except StopAsyncIteration:
                        _made_nothing(within)
                        return
                    except BaseException:
                        _made_nothing(within)
                        raise
                again, sent, thrown = True, None, None
                try:
                    sent = yield item
                except GeneratorExit:
                    with (opened(args, kwargs, again) if each_time else None) or NOTHING as within:
                        _made_nothing(within)
                        await inner.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001  # as above
                    thrown = error

    return wrapped


def _returned(entered: object, result: Any) -> Any:
    if hasattr(entered, "result"):
        entered.result = result
    return result


def _made_nothing(within: object) -> None:
    """Mark the context as no unit: a generator that ends has made no further item."""
    if isinstance(within, Unit):
        within.is_unit = False
