"""The command line: ``pmbnn COMMAND``, and ``python -m pmbnn.sweep`` for its first command.

The modules of commands import typer only; what a command needs is imported when it runs.
"""

from typing import Annotated

import typer

from pmbnn.cli import analyse, predict, run
from pmbnn.cli.command import Command, Commands

RUN, ANALYSE, FILES = "Run experiments", "Analyse results", "Manage files"
"""Panels of the help."""

app = typer.Typer(cls=Commands, add_completion=False, rich_markup_mode=None, no_args_is_help=True)
for _panel, _command, _help in (
    (RUN, run.sweep, "Fit the cells of an experiment file."),
    (RUN, run.check, "Compare fits with MCMC samples of the posterior."),
    (RUN, run.prior, "Run prior predictive checks."),
    (RUN, run.calibrate, "Run simulation-based calibration (SBC)."),
    (RUN, analyse.baselines, "Fit baseline models on the same splits."),
    (ANALYSE, predict.predict, "Predict images or table rows with a fitted cell."),
    (ANALYSE, analyse.compare, "Compare contrasts under ADVI and the posterior."),
    (ANALYSE, analyse.claims, "Compare priors and hyperpriors of stored results."),
    (ANALYSE, analyse.show, "Show what a results folder holds, and how far it is."),
    (ANALYSE, analyse.diff, "Compare two results folders."),
    (FILES, analyse.export, "Write a results folder as one ZIP file."),
    (ANALYSE, analyse.table, "Print a metric as a table for a paper."),
    (ANALYSE, analyse.report, "Write a one-page report of results folders."),
    (FILES, run.new, "Write an experiment file for a table."),
    (FILES, run.schema, "Print the JSON Schema of experiment files."),
    (FILES, run.merge, "Merge results folders of one experiment."),
    (FILES, analyse.verify, "Check the files of a results folder."),
    (FILES, analyse.prune, "Remove superseded cells from a results folder."),
):
    _name = _command.__name__
    app.command(_name, cls=Command, short_help=_help, rich_help_panel=_panel)(_command)


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
    """Bayesian neural networks as PyMC models: run and analyse experiments."""
