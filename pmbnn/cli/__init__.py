"""The command line: ``pmbnn COMMAND``, and ``python -m pmbnn.sweep`` for its first command.

The modules of commands import typer only; what a command needs is imported when it runs.
"""

from typing import Annotated

import typer

from pmbnn.cli import analyse, predict, run
from pmbnn.cli.command import Command, Commands, write_any_sign

DAILY, FURTHER, FILES = "Commands of every day", "Further analyses", "Manage files"
"""Panels of the help; commands are in the order of use."""

app = typer.Typer(cls=Commands, rich_markup_mode=None, no_args_is_help=True)
for _panel, _command, _help in (
    (DAILY, run.new, "Write an experiment file for a table."),
    (DAILY, run.sweep, "Fit the cells of an experiment file."),
    (DAILY, analyse.show, "Show what a results folder holds, and how far it is."),
    (DAILY, analyse.report, "Write a one-page report of results folders."),
    (DAILY, predict.predict, "Predict images or table rows with a fitted cell."),
    (DAILY, analyse.table, "Print a metric as a table for a paper."),
    (DAILY, analyse.compare, "Compare contrasts under ADVI and the posterior."),
    (DAILY, run.check, "Compare fits with MCMC samples of the posterior."),
    (FURTHER, analyse.diff, "Compare two results folders."),
    (FURTHER, analyse.baselines, "Fit baseline models on the same splits."),
    (FURTHER, analyse.claims, "Compare priors and hyperpriors of stored results."),
    (FURTHER, run.prior, "Run prior predictive checks."),
    (FURTHER, run.calibrate, "Run simulation-based calibration (SBC)."),
    (FILES, analyse.export, "Write a results folder as one ZIP file."),
    (FILES, run.merge, "Merge results folders of one experiment."),
    (FILES, analyse.verify, "Check the files of a results folder."),
    (FILES, analyse.prune, "Remove superseded cells from a results folder."),
    (FILES, run.schema, "Print the JSON Schema of experiment files."),
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
    write_any_sign()
