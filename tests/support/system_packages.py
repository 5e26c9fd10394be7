"""Programs that the suite needs and that no Python package brings: installed where that is allowed, else named."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
FOR_POSTGRES = {"pgbouncer": "pgbouncer"}  # program: Debian's package
FOR_BROWSER = {"chromium": "chromium"}
FOR_KAFKA = {"java": "default-jre-headless", "mvn": "maven"}


def program(name: str) -> str | None:
    """Where the program is; some of Debian's are not on a user's PATH."""
    return shutil.which(name, path=SEARCHED)


def provide(wanted: Mapping[str, str]) -> None:
    """Install the packages of the programs that are missing, as root with apt; else say which ones to install."""
    packages = sorted({package for name, package in wanted.items() if program(name) is None})
    if not packages:
        return
    names = " ".join(packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"\nNot on this machine: {names}; what needs them is left out (apt-get install {names})", flush=True)
        return
    print(f"\nInstalling {names} with apt-get", flush=True)
    if not _apt("install", *packages) and _apt("update"):
        _apt("install", *packages)


def _apt(command: str, *packages: str) -> bool:
    options = ["-y", "--no-install-recommends"] if command == "install" else []
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # installed, and not started
    done = subprocess.run(
        ["apt-get", command, "-qq", *options, *packages], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        print(f"apt-get {command} failed: {done.stderr.strip()[-500:]}", flush=True)
    return done.returncode == 0
