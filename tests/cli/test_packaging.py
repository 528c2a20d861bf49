"""The container and the service start the server with options that there are."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer.main

from noria.cli.main import app, register

PACKAGING = Path(__file__).parents[2] / "packaging"


def options_of(command: str) -> set[str]:
    register()
    found = typer.main.get_command(app).commands[command]
    return {option for parameter in found.params for option in parameter.opts}


def commands() -> dict[str, list[str]]:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str
    unit.read(PACKAGING / "noria.service")
    service = shlex.split(unit["Service"]["ExecStart"])
    docker = re.sub(r"\\\n", "", (PACKAGING / "Dockerfile").read_text())
    entry, more = (json.loads(re.findall(rf"^{word} (\[.*\])$", docker, re.M)[0]) for word in ("ENTRYPOINT", "CMD"))
    return {"service": service, "container": [*entry, *more]}


@pytest.mark.parametrize("where", ["service", "container"])
def test_the_server_takes_the_options(where: str) -> None:
    program, command, *rest = commands()[where]
    assert Path(program).name == "noria" and command == "serve"
    given = [word for word in rest if word.startswith("--")]
    assert set(given) <= options_of("serve") and len(rest) == 2 * len(given)


def test_a_container_that_others_reach_wants_a_password() -> None:
    words = commands()["container"]
    assert words[words.index("--mysql-host") + 1] == "0.0.0.0" and "--password-file" in words


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze, which checks units, is not here")
def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    unit = tmp_path / "noria.service"
    unit.write_text((PACKAGING / "noria.service").read_text().replace("/opt/noria/bin/noria", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "noria.service" not in done.stderr, done.stderr
