"""A step of building the wheel: scripts/wheel.sh names a folder with the binary and its licences, and the tag of the system."""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Binary(BuildHookInterface):  # type: ignore[misc,type-arg]
    """Adds the binary. Without the variables of scripts/wheel.sh the package has none, as in a clone."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = os.environ.get("ELRUN_WHEEL_FOLDER")
        if folder and version == "standard":
            build_data["force_include"][folder] = "elrun/bin"
            build_data["pure_python"] = False
            build_data["tag"] = os.environ["ELRUN_WHEEL_TAG"]
