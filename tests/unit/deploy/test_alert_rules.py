"""Rules, their tests and their runbook: each names what the others and the programs have."""

from __future__ import annotations

import re

import pytest
import yaml

from headrace_controller.control.metrics import IMPOSTURE
from tests.support.monitoring import (
    LABELS_OF_PROMETHEUS,
    PROMETHEUS,
    ROOT,
    RULE_TESTS,
    alerts,
    labels_of,
    questions,
    recorded,
    rules,
)
from tests.support.promql import grouped, selectors

RUNBOOK = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")


def sections() -> dict[str, str]:
    """Headings -> text."""
    parts = re.split(r"^## (.+)$", RUNBOOK, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_alert_has_its_section_and_no_section_is_left_over() -> None:
    assert set(sections()) == set(alerts())
    assert len(alerts()) > 20


@pytest.mark.parametrize("name", alerts())
def test_an_alert_says_what_it_is_and_where_to_read_on(name: str) -> None:
    rule, section = alerts()[name], sections()[name]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"]["runbook_url"] == f"docs/alerts.md#{name.lower()}"
    assert "**Means.**" in section
    assert "**Do.**" in section
    # A label that the alert does not have would be an empty place in the message.
    said = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    has = set().union(*(labels_of(each.name) or set() for each in selectors(rule["expr"])))
    assert said <= has | LABELS_OF_PROMETHEUS


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_asks_only_for_what_there_is(rule: dict[str, str]) -> None:
    found = selectors(rule["expr"])
    assert found
    has: set[str] = set()
    for each in found:
        known = labels_of(each.name)
        assert known is not None, f"{each.name} is not documented"
        assert each.labels <= known | LABELS_OF_PROMETHEUS, each
        has |= known
    assert grouped(rule["expr"]) <= has | LABELS_OF_PROMETHEUS


def test_recorded_series_are_named_by_their_labels_and_used() -> None:
    used = {each.name for rule in rules() for each in selectors(rule["expr"])}
    used |= {each.name for asked in questions() for each in selectors(asked.expr)}
    for name, expr in recorded().items():
        levels = set(name.split(":", 1)[0].split("_"))
        by = re.search(r"by \(([^)]*)\)", expr)
        kept = set(by[1].replace(",", " ").split()) - {"le"} if by else levels
        assert kept == levels, name
    assert set(recorded()) <= used


def test_every_alert_is_tested_to_fire() -> None:
    """promtool runs these (make test-extra)."""
    fired = set()
    for path in RULE_TESTS:
        for case in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]:
            fired |= {each["alertname"] for each in case["alert_rule_test"] if each["exp_alerts"]}
    assert fired == set(alerts())


def test_the_alert_on_imposture_watches_all_its_reasons() -> None:
    (asked,) = selectors(alerts()["HeadraceImposture"]["expr"])
    ((label, operator, pattern),) = asked.matchers
    assert (label, operator) == ("reason", "=~")
    assert all(re.fullmatch(pattern, reason) for reason in IMPOSTURE)
    assert not re.fullmatch(pattern, "replayed")


def test_every_reason_of_a_rejection_is_documented() -> None:
    """The reasons are words in the code, of which metrics.md has the list."""
    package = ROOT / "controller" / "src" / "headrace_controller"
    found = set()
    for path in [
        *package.glob("ingest/*.py"),
        package / "gateway/identity.py",
        package / "picker/service.py",
    ]:
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r'(?:Rejection|_refuse)\(\s*(?:context,\s*)?(?:node_id,\s*)?"(\w+)"', text))
        found |= set(re.findall(r'^TOO_MANY = "(\w+)"', text, re.MULTILINE))
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    table = page.split("| reasons |", 1)[1].split("\n\n", 1)[0]
    assert len(found) > 20
    assert found <= set(re.findall(r"`(\w+)`", table))
    assert set(IMPOSTURE) <= set(re.findall(r"`(\w+)`", table))


def test_the_example_scrapes_by_the_names_of_the_jobs_that_rules_ask_for() -> None:
    example = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"))
    jobs = {each["job_name"] for each in example["scrape_configs"]}
    matchers = [m for rule in rules() for each in selectors(rule["expr"]) for m in each.matchers]
    asked = {value for label, _, value in matchers if label == "job"}
    assert jobs == asked == {"headrace-controller", "headrace-agent"}
    assert all("region" in each["static_configs"][0]["labels"] for each in example["scrape_configs"])
