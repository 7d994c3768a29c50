// The Python extension module c10d_neuron._C: the backend's creator, its classes, and what the engine can tell of
// itself. Everything that may block releases the GIL.
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "c10d_neuron/callback_executor.h"
#include "c10d_neuron/errors.h"
#include "c10d_neuron/gil.h"
#include "c10d_neuron/loopback_groups.h"
#include "c10d_neuron/per_process.h"
#include "c10d_neuron/process_engine.h"
#include "c10d_neuron/process_group_neuron.h"
#include "transport/header.h"

namespace neuron {

namespace {

using Options = ProcessGroupNeuron::Options;
using GroupPtr = c10::intrusive_ptr<ProcessGroupNeuron>;
using NoGil = py::call_guard<py::gil_scoped_release>;

GroupPtr create(const c10d::DistributedBackendOptions& wanted, const c10::intrusive_ptr<Options>& user_options,
                const std::string& name) {
  GroupRequest request;
  request.store = wanted.store;
  request.rank = wanted.group_rank;
  request.size = wanted.group_size;
  request.name = wanted.group_id;
  request.global_ranks = wanted.global_ranks_in_group;
  request.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(wanted.timeout);
  auto options = c10::make_intrusive<Options>(name, request.timeout);
  if (user_options) options->group_desc = user_options->group_desc;
  const auto source = process_engine();
  auto group = value_or_raise(source->join(request));
  return c10::make_intrusive<ProcessGroupNeuron>(request.store, request.rank, request.size, std::move(group), source,
                                                 std::move(options));
}

py::list traffic_of(const Engine& engine, const std::vector<std::int64_t>& global_ranks) {
  std::vector<PeerTraffic> traffic;
  {
    const py::gil_scoped_release no_gil;
    traffic = engine.traffic();
  }
  py::list rows;
  for (const PeerTraffic& row : traffic) {
    const auto peer = static_cast<std::size_t>(row.peer);
    rows.append(py::dict(py::arg("peer") = peer < global_ranks.size() ? global_ranks[peer] : row.peer,
                         py::arg("transport") = row.transport, py::arg("messages") = row.messages,
                         py::arg("bytes") = row.bytes, py::arg("scheduled_bytes") = row.scheduled_bytes));
  }
  return rows;
}

const char* state_name(FlightRecord::State state) {
  switch (state) {
    case FlightRecord::State::issued:
      return "issued";
    case FlightRecord::State::started:
      return "started";
    case FlightRecord::State::done:
      return "done";
    case FlightRecord::State::failed:
      return "failed";
  }
  return "unknown";
}

py::dict as_dict(const FlightRecord& record) {
  py::dict row;
  row["number"] = record.number;
  row["group"] = record.group;
  row["group_name"] = record.group_name;
  row["epoch"] = record.epoch;
  row["sequence"] = record.sequence;
  row["collective"] = std::string(name_of(record.collective));
  row["algorithm"] = std::string(name_of(record.algorithm));
  row["data_type"] = std::string(name_of(record.data_type));
  row["reduce_op"] = std::string(name_of(record.reduce_op));
  row["rank"] = record.rank;
  row["world"] = record.world;
  row["root"] = record.root == kNoRank ? py::object(py::none()) : py::object(py::int_(record.root));
  row["tag"] = record.tag;
  row["input_bytes"] = record.input_bytes;
  row["output_bytes"] = record.output_bytes;
  row["segment_bytes"] = record.segment_bytes;
  row["topology"] = record.topology;
  row["schedule"] = record.schedule;
  row["state"] = state_name(record.state);
  row["issued_at_ns"] = record.issued_at;
  row["started_at_ns"] = record.started_at;
  row["finished_at_ns"] = record.finished_at;
  row["error"] = record.error;
  return row;
}

py::list records_of(const Engine& engine) {
  py::list rows;
  for (const FlightRecord& record : engine.flight_records()) rows.append(as_dict(record));
  return rows;
}

/// Rows of all jobs of the process, one list.
template <typename RowsOf>
py::list of_all_jobs(RowsOf rows_of) {
  py::list all;
  for (const auto& job : process_engine()->jobs()) {
    for (const py::handle row : rows_of(*job)) all.append(row);
  }
  return all;
}

void at_exit() {
  is_exiting.store(true);
  const ReleaseGil no_gil;
  process_engine()->leave_all();
  PerProcess<CallbackExecutor>::get().stop(std::chrono::seconds(2));
}

void bind_options(py::class_<ProcessGroupNeuron, c10d::Backend, GroupPtr>& group) {
  const auto copy = [](const Options& self) { return c10::make_intrusive<Options>(self); };
  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(
      group, "Options", "Options of a group: `_timeout`, and what torch fills in. Copies by copy.deepcopy.")
      .def(py::init([](const std::string& backend, std::chrono::milliseconds timeout) {
             return c10::make_intrusive<Options>(backend, timeout);
           }),
           py::arg("backend") = "neuron", py::arg("timeout") = kBackendDefaultTimeout)
      .def("__copy__", copy)
      .def(
          "__deepcopy__", [copy](const Options& self, const py::object& /*memo*/) { return copy(self); },
          py::arg("memo"));
}

void bind_group(py::module_& module) {
  py::class_<ProcessGroupNeuron, c10d::Backend, GroupPtr> group(
      module, "ProcessGroupNeuron", "The c10d backend of c10d-neuron. Made by torch.distributed, not by hand.");
  bind_options(group);
  group
      .def_property_readonly("options",
                             [](ProcessGroupNeuron& self) {
                               return c10::static_intrusive_pointer_cast<Options>(self.getBackendOptions());
                             })
      .def(
          "perform_nocolor_split", [](ProcessGroupNeuron& /*self*/, const py::object& /*device*/) {}, py::arg("device"),
          "What a rank outside a new group has to do for it: nothing.")
      .def("comm_split_count", &ProcessGroupNeuron::split_count)
      .def("get_error", &ProcessGroupNeuron::getError, NoGil())
      .def("_set_default_timeout", &ProcessGroupNeuron::setTimeout, py::arg("timeout"), NoGil())
      .def(
          "traffic", [](const ProcessGroupNeuron& self) { return traffic_of(*self.group().engine, {}); },
          "Per peer and transport: messages, bytes, scheduled_bytes.")
      .def(
          "flight_records", [](const ProcessGroupNeuron& self) { return records_of(*self.group().engine); },
          "The last operations of this process, oldest first, as dicts.")
      .def(
          "memory_in_use", [](const ProcessGroupNeuron& self) { return self.group().engine->memory_in_use(); },
          "Bytes that the engine holds for unmatched messages, queued sends and running operations.");
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  py::module_::import("torch.distributed");
  bind_group(module);
  module.attr("version") = C10D_NEURON_VERSION;
  module.attr("protocol_version") = kProtocolVersion;
  module.def("create", &create, py::arg("options"), py::arg("pg_options") = nullptr, py::arg("name") = "neuron",
             NoGil(), "Creator for torch.distributed.Backend.register_backend(..., extended_api=True).");
  module.def("knobs_markdown", &knobs_as_markdown, "The table of C10D_NEURON_* variables.");
  module.def(
      "traffic", [] { return of_all_jobs([](const Job& job) { return traffic_of(job.engine(), job.members()); }); },
      "Per peer (global rank) and transport: messages, bytes, scheduled_bytes.");
  module.def(
      "flight_records", [] { return of_all_jobs([](const Job& job) { return records_of(job.engine()); }); },
      "The last operations of this process, oldest first, as dicts.");
  module.def(
      "_make_loopback_groups",
      [](Rank world, std::uint64_t seed, const std::string& personality, const std::vector<std::string>& hosts,
         std::chrono::milliseconds timeout) {
        return make_loopback_groups({world, seed, personality, hosts, timeout});
      },
      py::arg("world"), py::arg("seed") = 1, py::arg("personality") = "efa_direct",
      py::arg("hosts") = std::vector<std::string>(), py::arg("timeout") = std::chrono::milliseconds(30'000), NoGil());
  py::module_::import("atexit").attr("register")(py::cpp_function(&at_exit));
}

}  // namespace neuron
