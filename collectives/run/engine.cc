#include "collectives/run/engine.h"

#include <algorithm>

#include "collectives/run/engine_impl.h"
#include "transport/base/log.h"

namespace neuron {
namespace {

EngineOptions with_defaults(EngineOptions options) {
  if (options.doorbell == nullptr) options.doorbell = std::make_shared<Doorbell>();
  return options;
}

std::vector<Transport*> transports_of(const EngineOptions& options) {
  std::vector<Transport*> transports;
  if (options.shared_memory != nullptr) transports.push_back(options.shared_memory.get());
  if (options.fabric != nullptr) transports.push_back(options.fabric.get());
  return transports;
}

Executor::Options executor_options(const EngineOptions& options) {
  return {options.rank, options.generation, options.peers, options.topology, transports_of(options)};
}

}  // namespace

Engine::Impl::Impl(EngineOptions options)
    : options_(with_defaults(std::move(options))),
      own_clock_(options_.clock == nullptr ? std::make_unique<SteadyClock>() : nullptr),
      clock_(options_.clock == nullptr ? own_clock_.get() : options_.clock),
      fabric_name_(options_.fabric == nullptr ? "" : options_.fabric->traits().name),
      flight_(static_cast<std::size_t>(options_.config.flight_records)),
      executor_(executor_options(options_), Tuner(), *clock_, flight_, *this) {
  const auto cores = static_cast<std::size_t>(std::max(1U, std::thread::hardware_concurrency()));
  const std::size_t on_host = options_.topology.ranks_of(options_.topology.host_of(options_.rank)).size();
  yields_ = std::max(on_host, options_.ranks_on_machine) > cores;
  const std::int64_t spin_us = options_.config.spin_us >= 0 ? options_.config.spin_us : yields_ ? 30 : 200;
  spin_ = spin_us * kMicrosecond;
  wait_set_.add(options_.doorbell->descriptor());
  background_deep_.add(options_.doorbell->descriptor());
  background_deep_.add(background_bell_.descriptor());
  background_idle_.add(background_bell_.descriptor());
  background_deep_.add(background_timer_.descriptor());
  background_idle_.add(background_timer_.descriptor());
  for (Transport* transport : transports_of(options_)) watch(*transport);
  last_activity_ = clock_->now();
  if (!options_.background_thread) return;
  background_state_.store(Background::awake);
  background_thread_ = std::thread([this] { background(); });
}

Engine::Impl::~Impl() {
  stops_.store(true);
  if (background_thread_.joinable()) {
    background_bell_.ring();
    options_.doorbell->ring();
    background_thread_.join();
  }
  while (!baton_.try_take()) baton_.sleep(nullptr, kMillisecond, [] { return false; });
  drain_on_close();
}

Result<OperationRef> Engine::Impl::issue(const std::shared_ptr<CommunicatorState>& group, Request request) {
  const Urgency urgency = request.urgency;
  const Nanoseconds timeout = request.timeout > 0 ? request.timeout : group->timeout.load(std::memory_order_relaxed);
  const bool is_point_to_point = request.collective == Collective::send || request.collective == Collective::receive;
  OperationRef operation(new Operation(group, std::move(request)));
  const std::uint64_t at =
      is_point_to_point ? group->epoch_and_sequence.load() : group->epoch_and_sequence.fetch_add(1);
  operation->epoch_ = static_cast<std::uint32_t>(at >> CommunicatorState::kSequenceBits);
  operation->sequence_ =
      is_point_to_point ? group->point_to_point_count.fetch_add(1) : at & CommunicatorState::kSequenceMask;
  operation->issued_at_ = clock_->now();
  operation->deadline_ = timeout >= kNever - operation->issued_at_ ? kNever : operation->issued_at_ + timeout;

  const Request& issued = operation->request_;
  FlightRecord record;
  record.group = group->spec.id;
  record.group_name = group->spec.name;
  record.epoch = operation->epoch_;
  record.sequence = operation->sequence_;
  record.collective = issued.collective;
  record.data_type = issued.data_type;
  record.reduce_op = issued.reduce_op;
  record.rank = group->rank;
  record.world = group->world();
  record.root = issued.root;
  record.tag = issued.tag;
  record.input_bytes = issued.input.bytes();
  record.output_bytes = issued.output.bytes();
  record.issued_at = operation->issued_at_;
  operation->record_ = flight_.issued(std::move(record));

  operation->references_.fetch_add(1);  // the queue's
  Operation* head = submitted_.load(std::memory_order_relaxed);
  do {
    operation->next_submitted_ = head;
  } while (!submitted_.compare_exchange_weak(head, operation.get()));
  if (urgency == Urgency::background) ring();
  if (urgency == Urgency::soon) ring_soon();
  return operation;
}

void Engine::Impl::post(std::function<void(Executor&)> job) {
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.push_back(std::move(job));
    has_inbox_.store(true);
  }
  ring();
}

void Engine::Impl::run_exclusively(const std::function<void()>& job) {
  while (!baton_.try_take()) {
    wake_driver();
    baton_.sleep(nullptr, kMillisecond, [] { return false; });
  }
  step();
  job();
  give_back();
}

void Engine::Impl::on_finished(Operation& operation) {
  const bool is_wanted =
      (operation.notify_.fetch_or(Operation::kFinished, std::memory_order_acq_rel) & Operation::kWanted) != 0;
  OperationRef reference = is_wanted ? OperationRef(&operation) : OperationRef();
  operation.done_.store(true);
  baton_.notify(&operation);
  if (is_wanted && options_.completions != nullptr) options_.completions->completed(std::move(reference));
}

std::vector<PeerTraffic> Engine::Impl::traffic() const {
  std::vector<PeerTraffic> rows;
  for (const Transport* transport : transports_of(options_)) {
    for (Rank peer = 0; peer < options_.topology.world(); ++peer) {
      const TrafficCount count = transport->traffic(peer);
      if (count.messages == 0 && count.bytes == 0) continue;
      rows.push_back({peer, transport->traits().name, count.messages, count.bytes, executor_.scheduled_bytes(peer)});
    }
  }
  return rows;
}

Engine::Engine(EngineOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Engine::~Engine() = default;

Rank Engine::rank() const { return impl_->options().rank; }
const Topology& Engine::topology() const { return impl_->options().topology; }
const Config& Engine::config() const { return impl_->options().config; }

std::string Engine::fabric_name() const {
  std::string name;  // the driver may be opening the fabric
  impl_->run_exclusively([&] { name = impl_->fabric_name(); });
  return name;
}

Nanoseconds Engine::now() const { return impl_->clock().now(); }
void Engine::ring() { impl_->ring(); }
WaitOutcome Engine::wait(Operation& operation, Nanoseconds until) { return impl_->wait(operation, until); }
void Engine::deliver(Rank source, std::span<const std::byte> bytes) { impl_->deliver(source, bytes); }

std::unique_ptr<Communicator> Engine::make_communicator(GroupSpec spec) {
  auto state = std::make_shared<CommunicatorState>(std::move(spec), rank(), topology());
  impl_->post([state](Executor& executor) { executor.add_group(state); });
  return std::make_unique<Communicator>(*this, std::move(state));
}

void Engine::report_death(Rank dead, const std::string& why) {
  impl_->post([dead, why](Executor& executor) { executor.on_death(dead, why); });
}

void Engine::report_leave(Rank gone) {
  impl_->post([gone](Executor& executor) { executor.on_leave(gone); });
}

std::vector<PeerTraffic> Engine::traffic() const {
  std::vector<PeerTraffic> rows;
  impl_->run_exclusively([&] { rows = impl_->traffic(); });
  return rows;
}

std::vector<FlightRecord> Engine::flight_records() const { return impl_->flight().snapshot(); }

std::size_t Engine::memory_in_use() const {
  std::size_t bytes = 0;
  impl_->run_exclusively([&] { bytes = impl_->executor().memory_in_use(); });
  return bytes;
}

}  // namespace neuron
