"""The check that every header compiles alone."""

from checks import headers

CLEAN = "// Rings: a value.\n#pragma once\n#include <vector>\ninline std::vector<int> ring() { return {}; }\n"


def test_headers_accepts_a_header_that_includes_what_it_uses(plant):
    assert headers.check(plant("topology/rings.h", CLEAN)) == []


def test_headers_reports_a_missing_include_with_every_compiler(plant):
    root = plant("topology/rings.h", CLEAN.replace("#include <vector>\n", ""))
    findings = headers.check(root)
    assert len(findings) == len(headers.compilers_for("topology/rings.h")) >= 1
    assert all(
        finding.path == "topology/rings.h" and "does not compile alone" in finding.message for finding in findings
    )


def test_headers_reports_a_warning(plant):
    root = plant("topology/rings.h", CLEAN + "inline int f(int unused) { return 1; }\n")
    assert all("unused" in finding.message for finding in headers.check(root))
    assert headers.check(root)


def test_headers_with_torch_are_compiled_by_one_compiler():
    assert len(headers.compilers_for("c10d_neuron/work.h")) <= 1
