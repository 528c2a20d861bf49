"""`noria verify`: compares views with their queries, which Spark recomputes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from noria.cli.options import DEFAULT_URL, Url


def command(
    view: Annotated[list[str] | None, typer.Argument(help="Views to verify; by default all.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Recompute views by Spark over a snapshot of the base tables and compare them with the served rows.

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
        agree = agree and step["agrees"] is not False
        console.print(f"{step['view']}: {_verdict(step)}")
        for difference in step.get("differences", []):
            console.print(f"    {difference}", markup=False)
    if not agree:
        raise typer.Exit(3)


def _verdict(step: dict[str, Any]) -> str:
    compared = str(step["compared"])
    if step["agrees"] is None:
        return compared.replace("nothing", "nothing to compare", 1)
    return f"{'[green]agrees[/]' if step['agrees'] else '[red]DIFFERS[/]'}, compared {compared}"
