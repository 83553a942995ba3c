"""One self-contained page of what results folders hold, ``index.html``.

`report_page` puts it together: each section is a module that turns cells into what is shown, in
plain words and numbers, and a template under ``templates/`` that shows it. `glossary` has the
meanings of the terms.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={"page": ["published_tables", "report_page"]},
)
