"""Redrawing one output of a notebook, with IPython alone.

Rich's own live display needs ipywidgets there, and a notebook that is saved does not keep it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from rich.console import RenderableType
from rich.jupyter import JupyterMixin

EVERY = 0.5
"""Seconds between two drawings."""


@contextmanager
def drawn_anew(render: Callable[[], RenderableType]) -> Iterator[None]:
    """Redraw the output of `render` at intervals, and once more at the end."""
    from IPython.display import display

    output, is_over = display(_Drawn(render()), display_id=True), Event()

    def follow() -> None:
        while not is_over.wait(EVERY):
            output.update(_Drawn(render()))

    thread = Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        output.update(_Drawn(render()))


class _Drawn(JupyterMixin):
    """A Rich renderable that notebooks can display."""

    def __init__(self, renderable: RenderableType) -> None:
        self.renderable = renderable

    def __rich__(self) -> RenderableType:
        return self.renderable
