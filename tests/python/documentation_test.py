"""Documents that are made from the code, and links between documents."""

import re
from pathlib import Path

import pytest

import c10d_neuron

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMED_FILE = re.compile(r"`((?:transport|collectives|topology|c10d_neuron|python|scripts|tests|docs)/[\w./*-]+)`")


def test_configuration_document_is_the_table_of_knobs():
    assert (ROOT / "docs" / "configuration.md").read_text() == c10d_neuron.knobs(), (
        "Run: .venv/bin/c10d-neuron knobs --markdown > docs/configuration.md"
    )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document):
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text())
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_are_named_exist(document):
    named = set(NAMED_FILE.findall(document.read_text()))
    assert not sorted(name for name in named if not any(ROOT.glob(name.rstrip("/"))))
