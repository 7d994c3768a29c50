"""The demo's checks: each must be able to fail."""

import pytest

from c10d_neuron import demo
from c10d_neuron.demo import Run, check_time, check_traffic, check_training


def report(**changes):
    return {"parameters": "abc", "losses": [2.0, 1.0] * 15, "accuracy": 0.98} | changes


def run(*reports, seconds=20.0):
    return Run(list(reports), [], seconds)


def row(peer, transport, sent, scheduled=None, messages=10):
    wanted = sent if scheduled is None else scheduled
    return {"peer": peer, "transport": transport, "messages": messages, "bytes": sent, "scheduled_bytes": wanted}


def failed(checks):
    return [check.name for check in checks if not check.passed]


HOST_OF = [0, 0, 1, 1]
# Each rank sends to the other one of its host, and to one of the other host.
TRAFFIC = [[row(rank ^ 1, "shared_memory", 1000), row(rank ^ 2, "net", 500)] for rank in range(4)]


def test_training_passes_when_all_agree():
    assert failed(check_training(run(report(), report()), report())) == []


def test_training_fails_when_replicas_differ():
    checks = check_training(run(report(), report(parameters="abd")), report())
    assert failed(checks) == ["parameters bit-identical on all ranks"]


def test_training_fails_when_an_early_loss_differs():
    losses = [2.0, 1.0] * 15
    losses[19] *= 1 + 2e-5
    checks = check_training(run(report(losses=losses)), report())
    assert failed(checks) == ["first 20 losses equal to a single process"]


def test_training_ignores_later_losses():
    losses = [2.0, 1.0] * 15
    losses[20] *= 1.5
    assert failed(check_training(run(report(losses=losses)), report())) == []


def test_training_fails_when_losses_are_missing():
    checks = check_training(run(report(losses=[2.0] * 19)), report(losses=[2.0] * 19))
    assert failed(checks) == ["first 20 losses equal to a single process"]


def test_training_fails_when_a_loss_is_no_number():
    checks = check_training(run(report(losses=[float("nan")] * 30)), report())
    assert failed(checks) == ["first 20 losses equal to a single process"]


def test_training_fails_when_accuracy_is_more_than_a_point_away():
    checks = check_training(run(report(accuracy=0.965)), report(accuracy=0.98))
    assert failed(checks) == ["test accuracy within a point of a single process"]


def test_training_fails_below_96_percent():
    checks = check_training(run(report(accuracy=0.959)), report(accuracy=0.96))
    assert failed(checks) == ["test accuracy at least 96%"]


def test_time_fails_after_three_minutes():
    assert failed(check_time(run(report(), seconds=181))) == ["in under three minutes"]


def test_traffic_passes_when_each_pair_goes_its_way():
    assert failed(check_traffic(TRAFFIC, HOST_OF)) == []


def test_traffic_allows_a_header_for_each_message():
    traffic = [[row(1, "shared_memory", 1640, scheduled=1000)], [], [row(0, "net", 500)], []]
    assert failed(check_traffic(traffic, HOST_OF)) == []


@pytest.mark.parametrize("sent", [999, 1641])
def test_traffic_fails_when_bytes_are_not_the_schedules(sent):
    traffic = [[row(1, "shared_memory", sent, scheduled=1000)], [], [row(0, "net", 500)], []]
    assert failed(check_traffic(traffic, HOST_OF)) == ["bytes as the schedules say, up to headers"]


def test_traffic_adds_up_what_a_pair_sent_by_two_transports():
    split = [row(1, "shared_memory", 600, scheduled=1000), row(1, "net", 400, scheduled=1000)]
    checks = check_traffic([split, [], [row(0, "net", 500)], []], HOST_OF)
    assert failed(checks) == ["every pair used the transport it should"]


def test_traffic_fails_when_a_host_went_through_the_fabric_inside():
    traffic = [[row(1, "net", 1000)], [], [row(0, "net", 500)], []]
    assert failed(check_traffic(traffic, HOST_OF)) == [
        "inside a host: shared memory moved bytes",
        "every pair used the transport it should",
    ]


def test_traffic_fails_when_nothing_went_between_hosts():
    traffic = [[row(1, "shared_memory", 1000)], [], [], []]
    assert failed(check_traffic(traffic, HOST_OF)) == ["between hosts: the fabric moved bytes"]


def test_table_counts_what_failed():
    table = demo.check_table([demo.Check("a", True, "x"), demo.Check("bb", False, "y")])
    assert table.splitlines() == ["ok      a   x", "FAILED  bb  y", "", "1 of 2 checks passed: FAILED"]
