"""`noria verify`: every view against its query recomputed by Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from noria.cli.options import DEFAULT_URL, Url


def command(
    view: Annotated[list[str] | None, typer.Argument(help="Views to verify; none: all.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Recompute views on Spark over a snapshot of the base tables and compare them with what is served.

    Status 0: all agree; 3: some differ, and the differing keys are printed.
    """
    from rich.console import Console

    from noria.client.transport import HttpTransport

    console = Console()
    agree = True
    for step in HttpTransport(url).lines("/verify", {"views": view or []}):
        if "view" not in step:
            console.print(str(step.get("step", "")), style="dim")
            continue
        agree = agree and bool(step["agrees"])
        verdict = "[green]agrees[/]" if step["agrees"] else "[red]DIFFERS[/]"
        console.print(f"{step['view']}: {verdict}, compared {step['compared']}")
        for difference in step.get("differences", []):
            console.print(f"    {difference}", markup=False)
    if not agree:
        raise typer.Exit(3)
