"""What is drawn anew in one output of a notebook, with nothing but IPython.

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
    """Draw what `render` gives now and then, and as it is last."""
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
    """What Rich draws, as a notebook takes it."""

    def __init__(self, renderable: RenderableType) -> None:
        self.renderable = renderable

    def __rich__(self) -> RenderableType:
        return self.renderable
