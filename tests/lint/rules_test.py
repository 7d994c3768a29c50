"""The checks of environment, posting and text: each catches a planted violation and leaves comments and tests alone."""

import pytest
from checks import environment, posting, text


@pytest.mark.parametrize(
    ("name", "code", "found"),
    [
        ("transport/fabric/endpoint.cc", 'auto* p = std::getenv("FI_PROVIDER");', True),
        ("c10d_neuron/module.cc", 'secure_getenv("HOME");', True),
        ("topology/host_facts.cc", "extern char** environ;", True),
        ("topology/host_facts.cc", 'setenv("A", "b", 1);', True),
        ("transport/base/config.cc", 'getenv("C10D_NEURON_LOG");', False),
        ("transport/fabric/library.cc", 'setenv("FI_LOG_LEVEL", "warn", 0);', False),
        ("tests/transport/base/config_test.cc", 'setenv("C10D_NEURON_LOG", "info", 1);', False),
        ("topology/host_facts.cc", "// getenv would be wrong here", False),
        ("topology/host_facts.cc", 'log("getenv");', False),
    ],
)
def test_environment_is_touched_in_one_place(plant, name, code, found):
    assert bool(environment.check(plant(name, code + "\n"))) is found


@pytest.mark.parametrize(
    ("name", "code", "found"),
    [
        ("c10d_neuron/process_group.cc", "messenger_.post_send(peer, bytes);", True),
        ("c10d_neuron/process_group.cc", "engine->messenger().post_receive(peer);", True),
        ("collectives/run/executor.cc", "messenger_.post_send(peer, bytes);", False),
        ("transport/messaging/messenger.cc", "flow_.post_receive(peer);", False),
        ("tests/transport/contract/order_test.cc", "messenger.post_send(peer, bytes);", False),
        ("collectives/run/engine.cc", "transport_->send(peer, header, {});", True),
        ("c10d_neuron/engine.cc", "shared_memory_transport->write(peer);", True),
        ("c10d_neuron/engine.cc", "control->send(rank, bytes);", False),
        ("transport/messaging/messenger.cc", "transport_->send(peer, header, {});", False),
        ("c10d_neuron/engine.cc", "/* messenger_.post_send(peer) */", False),
    ],
)
def test_posting_is_done_by_the_executor_only(plant, name, code, found):
    assert bool(posting.check(plant(name, code + "\n"))) is found


def test_text_reports_what_was_left_undone(plant):
    (finding,) = text.check(plant("topology/rings.cc", "int a;\n// TO" + "DO: the other half\n"))
    assert (finding.path, finding.line, finding.is_error) == ("topology/rings.cc", 2, True)


def test_text_warns_of_a_long_file_and_does_not_fail(plant):
    (finding,) = text.check(plant("topology/rings.cc", "int a;\n" * (text.MAXIMUM_LINES + 1)))
    assert not finding.is_error


def test_text_accepts_a_file_of_the_greatest_length(plant):
    assert text.check(plant("topology/rings.cc", "int a;\n" * text.MAXIMUM_LINES)) == []


def test_text_reports_a_header_without_introduction(plant):
    (finding,) = text.check(plant("topology/rings.h", "#pragma once\nint a;\n"))
    assert "a header starts by saying" in finding.message


def test_text_reports_a_header_without_guard(plant):
    (finding,) = text.check(plant("topology/rings.h", "// Rings: a value.\nint a;\n"))
    assert "#pragma once" in finding.message
