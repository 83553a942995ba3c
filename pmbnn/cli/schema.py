"""The JSON Schema of experiment files: ``pmbnn schema``."""

from pathlib import Path
from typing import Annotated

import typer

from pmbnn.cli.shared import Command, TrustPlugins, reported, written

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command)
def schema(
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write it there instead of printing it."),
    ] = None,
    of: Annotated[
        Path | None,
        typer.Option(
            "--for", metavar="EXPERIMENT", help="With what the plugins of that file register."
        ),
    ] = None,
    trust_plugins: TrustPlugins = False,
) -> None:
    """Print the JSON Schema of experiment files, for editors that complete and check YAML.

    Exit status: 0, 2 for bad input, 3 where the system stood in the way (a full disk).
    """
    import json

    from pmbnn.experiment.load import load_experiment
    from pmbnn.experiment.schema import schema as made
    from pmbnn.results.faults import ResultsError
    from pmbnn.spec.errors import ConfigError

    with reported(ConfigError, ResultsError):
        if of is not None:
            load_experiment(of)
        text = json.dumps(made(), indent=2, ensure_ascii=False) + "\n"
        if out is None:
            typer.echo(text, nl=False)
        else:
            with written(out):
                out.write_text(text, encoding="utf-8")
