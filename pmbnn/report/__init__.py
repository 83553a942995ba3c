"""One self-contained page of everything that results folders hold: `pmbnn report`.

`report_page` puts it together: each section is a module that turns cells into what is shown, in
plain words and numbers, and a template under ``templates/`` that shows it. `index_page` writes the
``index.html`` of a results folder.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={"page": ["published_tables", "report_page"]},
)
