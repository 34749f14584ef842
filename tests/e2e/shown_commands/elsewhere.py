"""The commands of the documentation that are not run here as they stand, each with the reason.

A pattern must match a command from its beginning, and must match one that is shown.
"""

from __future__ import annotations

import re
from typing import Final

from tests.e2e.shown_commands.reading import Shown

BY_THE_CLI_PAGE: Final = "run, with what it prints, by tests/integration/operator_cli/test_cli_page.py"
SERVICES: Final = (
    "needs systemd as the first process and root; deploy/systemd is judged in tests/integration/deploy_units"
)
SYSTEM: Final = "would change the folders or the kernel of the machine that tests"
DOCKER: Final = (
    "needs a Docker daemon; docker-compose.yml and the images' steps are tested in tests/unit/deploy"
)
CLUSTER: Final = "needs a cluster; deploy/kubernetes is tested in tests/unit/deploy"
PACKAGES: Final = "installs packages; `make wheels` builds, installs and imports all four"
OTHER_MACHINE: Final = "needs another machine"
LONG: Final = (
    "takes minutes of both cores, root, or the results of such a run; tests/e2e/live_lab, "
    "tests/e2e/whole_path, tests/integration/lab_* and tests/unit/lab run the same with less"
)
NO_REGISTRY: Final = (
    "grpcurl is in no package registry that tests may use; reflection is asked in tests/integration"
)

NOT_RUN: Final[dict[str, str]] = {
    r"python3 -m venv /opt/": SYSTEM,
    r"(/opt/headrace/bin/)?pip install": PACKAGES,
    r"(cp|install|chgrp) .*(/etc/headrace|/usr/lib|/etc/systemd)": SYSTEM,
    r"runuser": "needs root, and the user that deploy/systemd makes",
    r"sysctl -w": SYSTEM,
    r"systemd-sysusers": SERVICES,
    r"systemctl|journalctl": SERVICES,
    r"docker": DOCKER,
    r"kubectl": CLUSTER,
    r"ssh": OTHER_MACHINE,
    r"grpcurl": NO_REGISTRY,
    r"(sudo )?headrace-lab": LONG,
    r"headrace explain$": "names the command; with a cell it is run",
    r"headrace explain --request": "needs a request that a picker has answered: tests/e2e/picker",
    r"curl PROMETHEUS": "a Prometheus that scrapes, with the rules, is asked in tests/e2e/monitoring",
}


def reason(each: Shown) -> str:
    """Why a command is not run here; "" = it is."""
    if each.page == "docs/cli.md" and not each.inline:
        return BY_THE_CLI_PAGE
    return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, each.command)), "")
