"""The commands, alone (``python -m pmbnn.sweep``) and as parts of one: ``pmbnn``.

Their modules import typer only; what a command needs is imported when it runs.
"""

from typing import Annotated

import typer

from pmbnn.cli import (
    baselines,
    calibrate,
    check,
    claims,
    compare,
    merge,
    new,
    predict,
    prune,
    report,
    schema,
    sweep,
    verify,
)
from pmbnn.cli.shared import Command

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
for _name, _command, _words in (
    ("sweep", sweep.sweep, "Fit the cells of an experiment file."),
    ("merge", merge.merge, "Join results folders of one experiment."),
    ("check", check.check, "Hold fits against the posterior itself."),
    ("calibrate", calibrate.calibrate, "Tell by simulated data if draws can be believed."),
    ("predict", predict.predict, "Ask a fitted cell about images or rows of your own."),
    ("report", report.report, "Write one page of results folders."),
    ("claims", claims.claims, "Hold claims against results folders."),
    ("compare", compare.compare, "Hold contrasts under ADVI against the posterior."),
    ("verify", verify.verify, "Check the files of a results folder."),
    ("prune", prune.prune, "Remove superseded cells from a results folder."),
    ("baselines", baselines.baselines, "Fit usual methods to the same data."),
    ("schema", schema.schema, "Print the JSON Schema of experiment files."),
    ("new", new.new, "Write an experiment file for a table."),
):
    app.command(_name, cls=Command, short_help=_words)(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from pmbnn import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def pmbnn(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    """Bayesian neural networks as PyMC models: experiments, and what becomes of them."""
