"""The scripts of `completion` in a real shell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import hermes_pgvector


def completed(script: Path, *words: str) -> set[str]:
    """What bash offers after these words, the last of which is not complete."""
    line = f"""
        source {script}
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)}); COMP_CWORD={len(words) - 1}
        function=$(complete -p hermes-pgvector | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
        $function; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    run = subprocess.run(["bash", "--norc", "-c", line], capture_output=True, text=True, check=True, timeout=60)
    return set(run.stdout.split())


def test_bash_completes_commands_options_and_values(tmp_path: Path) -> None:
    made = hermes_pgvector("completion", "bash")
    assert made.code == 0
    script = tmp_path / "script"
    script.write_text(made.out)
    assert {"prune", "remap", "doctor"} <= completed(script, "hermes-pgvector", "")
    assert completed(script, "hermes-pgvector", "pru") == {"prune"}
    assert completed(script, "hermes-pgvector", "prune", "--lon") == {"--longer-than"}
    assert {"user", "assistant"} <= completed(script, "hermes-pgvector", "prune", "--role", "")
    assert completed(script, "hermes-pgvector", "import", f"{tmp_path}/scr") == {str(script)}
    assert completed(script, "hermes-pgvector", "--home", f"{tmp_path.parent}/{tmp_path.name[:-1]}") >= {str(tmp_path)}


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_commands_values_and_paths(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(hermes_pgvector("completion", "fish").out)

    def offered(line: str) -> list[str]:
        command = ["fish", "--no-config", "-c", f"source {script}; complete -C 'hermes-pgvector {line}'"]
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return [line.partition("\t")[0] for line in run.stdout.splitlines()]

    assert offered("pru") == ["prune"]
    assert offered("prune --lon") == ["--longer-than"]
    assert {"user", "assistant"} <= set(offered("prune --role "))
    assert offered(f"import {tmp_path}/scr") == [str(script)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_the_script_of_each_shell_names_the_commands(shell: str) -> None:
    document = hermes_pgvector("completion", shell, "--json").document
    assert document["shell"] == shell
    assert "longer-than" in document["script"]
    if shutil.which(shell):
        check = subprocess.run([shell, "-n"], input=document["script"], capture_output=True, text=True, timeout=60)
        assert check.returncode == 0, check.stderr


def test_without_shtab_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    refused = hermes_pgvector("completion", "bash")
    assert (refused.code, refused.out) == (1, "")
    assert "completion]" in refused.err
    assert hermes_pgvector("completion", "powershell").code == 2
