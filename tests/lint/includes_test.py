"""The include check: each kind of forbidden include is caught, what is allowed is not."""

import pytest
from checks import includes


def messages(root):
    return [finding.message for finding in includes.check(root)]


def test_includes_finds_nothing_in_a_clean_tree(plant):
    assert messages(plant("collectives/run/executor.cc", '#include "transport/transport.h"\n')) == []


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("transport/base/log.cc", "transport/transport.h"),
        ("collectives/schedule/cost.cc", "transport/transport.h"),
        ("topology/topology.cc", "transport/transport.h"),
        ("transport/loopback/loopback.cc", "transport/messaging/messenger.h"),
        ("c10d_neuron/control/join.cc", "transport/transport.h"),
    ],
)
def test_includes_reports_an_upward_include(plant, name, target):
    plant("transport/messaging/messenger.h", "// Messenger.\n#pragma once\n")
    root = plant(name, f'// A file.\n#include "{target}"\n')
    findings = includes.check(root)
    assert [(finding.path, finding.line) for finding in findings] == [(name, 2)]
    assert "may not include" in findings[0].message


@pytest.mark.parametrize(
    ("name", "target", "owner"),
    [
        ("transport/messaging/messenger.cc", "rdma/fabric.h", "libfabric"),
        ("c10d_neuron/module.cc", "rdma/fi_domain.h", "libfabric"),
        ("c10d_neuron/module.cc", "grpcpp/grpcpp.h", "gRPC"),
        ("c10d_neuron/module.cc", "c10d_neuron/control/join.pb.h", "gRPC"),
        ("transport/fabric/wire.cc", "google/protobuf/message.h", "gRPC"),
        ("collectives/run/engine.cc", "boost/asio.hpp", "gRPC"),
        ("c10d_neuron/control/join.cc", "torch/extension.h", "torch"),
        ("collectives/reduce/reducer.cc", "c10/util/BFloat16.h", "torch"),
        ("tests/collectives/run/executor_test.cc", "torch/torch.h", "torch"),
    ],
)
def test_includes_reports_a_hidden_header(plant, name, target, owner):
    (message,) = messages(plant(name, f"#include <{target}>\n"))
    assert owner in message


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("transport/fabric/endpoint.cc", "rdma/fabric.h"),
        ("tests/transport/fabric/endpoint_test.cc", "rdma/fabric.h"),
        ("c10d_neuron/control/join.cc", "grpcpp/grpcpp.h"),
        ("c10d_neuron/work.h", "torch/csrc/distributed/c10d/Work.hpp"),
    ],
)
def test_includes_allows_a_header_where_it_belongs(plant, name, target):
    assert messages(plant(name, f"#include <{target}>\n")) == []


def test_includes_reports_a_file_that_does_not_exist(plant):
    (message,) = messages(plant("topology/topology.cc", '#include "topology.h"\n'))
    assert "no file of the repository" in message


def test_includes_reports_a_test_header_in_the_product(plant):
    plant("tests/support/seed.h", "// Seed.\n#pragma once\n")
    (message,) = messages(plant("topology/topology.cc", '#include "tests/support/seed.h"\n'))
    assert "does not include tests" in message


def test_includes_table_names_only_folders_that_exist(repository):
    assert [layer for layer in includes.LAYERS if not (repository / layer).is_dir()] == []
