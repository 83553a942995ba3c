"""Contestants in processes of their own, which stay compiled and answer requests."""

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import measuring


@dataclass(frozen=True)
class Entry:
    """A contestant: its row's name, environment, script, variant, and what is special."""

    name: str
    environment: str
    script: str
    variant: str
    remark: str = "one-cycle, f32"


@dataclass
class Running:
    """A contestant's process and what it has said."""

    entry: Entry
    process: subprocess.Popen
    log: Path
    versions: dict[str, str] = field(default_factory=dict)
    fault: str | None = None
    preparation: dict = field(default_factory=dict)
    guide: dict = field(default_factory=dict)

    def ask(self, request: str) -> dict:
        """Answer to a request; an error is kept and ends the contestant's part."""
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
            answer = self._listen()
        except BrokenPipeError:
            answer = {"error": self._last_words()}
        self.fault = self.fault or answer.get("error")
        return answer

    def greet(self) -> None:
        """Wait for the versions, the first thing it says."""
        answer = self._listen()
        self.fault = answer.get("error")
        self.versions = answer.get("versions", {})

    def microseconds(self) -> float:
        """Time of a step and fit in one chunk."""
        answer = self.ask("chunk")
        return float("nan") if self.fault else 1e6 * answer["seconds"] / answer["steps"]

    def _listen(self) -> dict:
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": self._last_words()}

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        return lines[-1]


def start(entry: Entry, number: int, pythons: dict, folder: Path, problem: Path) -> Running:
    """Start a contestant's process, with empty caches; `number` tells its files apart."""
    log = folder / f"{number}.log"
    environment = measuring.caches_in(folder / f"cache-{number}")
    paths = [str(measuring.HERE), environment.get("PYTHONPATH")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    script = measuring.HERE / "contestants" / f"{entry.script}.py"
    process = subprocess.Popen(
        [*pythons[entry.environment], str(script), entry.variant, str(problem)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log.open("w"),
        text=True,
        env=environment,
    )
    return Running(entry, process, log)


def stop(running: list[Running]) -> None:
    """End the processes of all contestants."""
    for one in running:
        one.process.stdin.close()
        one.process.terminate()
        one.process.wait()
