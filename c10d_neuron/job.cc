#include "c10d_neuron/job.h"

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <numeric>
#include <optional>

#include "c10d_neuron/callback_executor.h"
#include "c10d_neuron/per_process.h"
#include "topology/host_facts.h"
#include "transport/base/descriptor.h"
#include "transport/base/random.h"
#include "transport/fabric/open.h"
#include "transport/shared_memory/endpoint.h"

namespace neuron {

namespace {

std::string hex(std::uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, number);
  return text;
}

/// Asks before the job is joined whether shared memory can be offered; an empty listener means no.
std::optional<shared_memory::Listener> offer_shared_memory(const Config& config) {
  if (!config.shared_memory) return std::nullopt;
  Status status = shared_memory::probe();
  if (status.is_ok()) {
    auto listener = shared_memory::Listener::open();
    if (listener.is_ok()) return std::move(*listener);
    status = listener.status();
  }
  log_once(LogLevel::warning,
           "shared memory cannot be used, ranks of this host talk through the fabric: " + status.message());
  return std::nullopt;
}

/// Why the job needs libfabric; empty: it does not.
std::string why_fabric(const control::Shape& shape) {
  const Topology& topology = shape.topology;
  if (topology.hosts() > 1) return "the job spans " + std::to_string(topology.hosts()) + " hosts";
  if (shape.members.size() == 1) return {};
  for (const control::Member& member : shape.members) {
    if (!member.shared_memory_address.empty()) continue;
    return "rank " + std::to_string(member.rank) +
           " offers no shared memory (C10D_NEURON_SHARED_MEMORY=0, or its sandbox forbids it)";
  }
  return {};
}

}  // namespace

std::vector<std::int64_t> members_of(const GroupRequest& request) {
  if (!request.global_ranks.empty()) return request.global_ranks;
  std::vector<std::int64_t> all(static_cast<std::size_t>(request.size));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return all;
}

/// Hands to the engine what the control plane hears; keeps what comes before there is one.
class Job::EngineListener final : public control::Listener {
 public:
  void on_message(Rank source, std::span<const std::byte> bytes) override {
    tell([source, kept = std::vector<std::byte>(bytes.begin(), bytes.end())](Engine& engine) {
      engine.deliver(source, kept);
    });
  }
  void on_death(Rank rank, const std::string& why) override {
    tell([rank, why](Engine& engine) { engine.report_death(rank, why); });
  }
  void on_leave(Rank rank) override {
    tell([rank](Engine& engine) { engine.report_leave(rank); });
  }

  void attach(Engine& engine) {
    const std::lock_guard lock(mutex_);
    engine_ = &engine;
    for (const auto& event : early_) event(engine);
    early_.clear();
  }
  void detach() {
    const std::lock_guard lock(mutex_);
    engine_ = nullptr;
    is_detached_ = true;
  }

 private:
  using Event = std::function<void(Engine&)>;

  void tell(Event event) {
    const std::lock_guard lock(mutex_);
    if (engine_ != nullptr) return event(*engine_);
    if (!is_detached_) early_.push_back(std::move(event));
  }

  std::mutex mutex_;
  Engine* engine_ = nullptr;
  bool is_detached_ = false;
  std::vector<Event> early_;
};

/// The engine's way to the others beside the data path.
class Job::Channel final : public ControlChannel {
 public:
  explicit Channel(control::Control& control) : control_(control) {}
  void send(Rank destination, std::vector<std::byte> bytes) override { control_.send(destination, std::move(bytes)); }
  void broadcast(std::vector<std::byte> bytes) override { control_.broadcast(std::move(bytes)); }

 private:
  control::Control& control_;
};

Job::Job(const GroupRequest& request, std::uint64_t nonce) : members_(members_of(request)), nonce_(nonce) {}

Result<std::shared_ptr<Job>> Job::join(const GroupRequest& request, const std::shared_ptr<StoreAdapter>& store,
                                       const Config& config) {
  std::shared_ptr<Job> job(new Job(request, random_nonce()));
  const Status status = job->open(request, *store, config);
  if (!status.is_ok()) return status;
  return job;
}

Status Job::open(const GroupRequest& request, StoreAdapter& store, const Config& config) {
  const auto rank = static_cast<Rank>(request.rank);
  const HostFacts host = HostFacts::of_this_process(config);
  std::optional<shared_memory::Listener> offer = offer_shared_memory(config);

  control::JoinOptions join;
  join.rank = rank;
  join.world = static_cast<Rank>(request.size);
  join.self.rank = rank;
  join.self.nonce = nonce_;
  join.self.pid = static_cast<std::uint32_t>(::getpid());
  join.self.host_name = host.name;
  join.self.host_identity = host.identity();
  join.self.version = std::string(C10D_NEURON_VERSION) + " (protocol " + std::to_string(kProtocolVersion) + ")";
  if (offer) join.self.shared_memory_address = offer->address({rank, nonce_});
  join.timeout = request.timeout;
  join.token_file = config.token_file;
  join.network_interface = config.network_interface;

  doorbell_ = std::make_shared<Doorbell>();
  listener_ = std::make_unique<EngineListener>();
  auto control = control::Control::join(join, store, *listener_);
  if (!control.is_ok()) return control.status();
  control_ = std::move(*control);
  channel_ = std::make_unique<Channel>(*control_);
  const control::Shape& shape = control_->shape();
  generation_ = shape.generation;

  EngineOptions options;
  options.rank = rank;
  options.generation = static_cast<std::uint32_t>(shape.generation);
  options.topology = shape.topology;
  options.control = channel_.get();
  options.completions = &PerProcess<CallbackExecutor>::get();
  options.doorbell = doorbell_;
  options.clock = &clock_;
  options.config = config;
  for (const control::Member& member : shape.members) {
    options.peers.push_back({member.nonce, member.pid, member.host_name, member.shared_memory_address});
  }
  const auto machine_of = [&](const control::Member& member) { return HostFacts::machine_of(member.host_identity); };
  const auto own_machine = machine_of(shape.members[static_cast<std::size_t>(rank)]);
  options.ranks_on_machine = static_cast<std::size_t>(
      std::count_if(shape.members.begin(), shape.members.end(),
                    [&](const control::Member& member) { return machine_of(member) == own_machine; }));
  const std::size_t local_ranks = shape.topology.ranks_of(shape.topology.host_of(rank)).size();
  if (offer && local_ranks > 1) {
    shared_memory::Options local;
    local.rank = rank;
    local.nonce = nonce_;
    local.local_ranks = static_cast<std::uint32_t>(local_ranks);
    local.token = control_->token();
    local.on_pidfd = [this](Rank peer, int pidfd) {
      const Descriptor ours(pidfd);  // watch() keeps a copy
      control_->watch(peer, pidfd);
    };
    auto endpoint = shared_memory::Endpoint::create(std::move(local), *doorbell_, std::move(offer));
    if (!endpoint.is_ok()) return endpoint.status();
    options.shared_memory = std::move(*endpoint);
  }
  options.open_fabric = [this, config] { return open_fabric(config); };
  if (const std::string why = why_fabric(shape); !why.empty()) {
    auto rail = open_fabric(config);
    if (!rail.is_ok())
      return {rail.status().code(), "libfabric is needed because " + why + ", but: " + rail.status().message()};
    options.fabric = std::move(*rail);
  }
  engine_ = std::make_unique<Engine>(std::move(options));
  listener_->attach(*engine_);
  GroupSpec everybody;
  everybody.id = Random::mix(generation_) | 1;
  everybody.name = "farewell";
  everybody.members.resize(shape.members.size());
  std::iota(everybody.members.begin(), everybody.members.end(), Rank{0});
  farewell_ = engine_->make_communicator(std::move(everybody));
  return {};
}

Result<std::unique_ptr<Transport>> Job::open_fabric(const Config& config) const {
  auto rail = fabric::open(fabric::options_from(config), clock_);
  if (!rail.is_ok()) return rail.status();
  log(LogLevel::info, "fabric: " + (*rail)->description());
  return std::unique_ptr<Transport>(std::move(*rail));
}

Job::~Job() {
  leave();
  farewell_.reset();
  if (listener_) listener_->detach();
  engine_.reset();
}

void Job::leave() {
  if (is_over_.exchange(true)) return;
  if (farewell_) say_farewell();
  if (control_) control_->leave();
}

/// What a network connection has taken is lost when it is closed before the peer has read it. So nobody closes before
/// all have come to their end, or a second has passed: ranks mostly leave together. Shared memory outlives its owner
/// and needs no such care.
void Job::say_farewell() {
  if (engine_->fabric_name().empty()) return;
  Request request;
  request.collective = Collective::barrier;
  request.timeout = 3600 * kSecond;  // nobody is to hear of it when it does not come about
  request.urgency = Urgency::caller;
  const auto operation = farewell_->issue(request);
  if (!operation.is_ok()) return;  // somebody has died: no reason to wait
  const Nanoseconds until = engine_->now() + kFarewell;
  while (engine_->wait(**operation, until) == WaitOutcome::look_up) {
  }
}

bool Job::covers(const std::vector<std::int64_t>& global_ranks) const {
  return std::all_of(global_ranks.begin(), global_ranks.end(), [this](std::int64_t rank) {
    return std::find(members_.begin(), members_.end(), rank) != members_.end();
  });
}

Result<std::shared_ptr<Group>> Job::make_group(const GroupRequest& request, control::KeyValueStore& store) {
  auto group = std::make_shared<Group>();
  group->global_ranks = members_of(request);
  GroupSpec spec;
  spec.name = request.name;
  spec.timeout = request.timeout.count() * kMillisecond;
  for (const std::int64_t global : group->global_ranks) {
    spec.members.push_back(static_cast<Rank>(std::find(members_.begin(), members_.end(), global) - members_.begin()));
  }
  std::uint64_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    count = groups_made_[request.name]++;
    spec.id = Random::mix(nonce_ + ++ids_made_) | 1;
  }
  const std::string key = "c10d_neuron/" + hex(generation_) + "/group/" + std::to_string(count);
  if (request.rank == 0) {
    const Status told = store.set(key, hex(spec.id));
    if (!told.is_ok()) return told;
  } else {
    const auto id = store.get(key, request.timeout);
    if (!id.is_ok()) {
      return Status(id.status().code(),
                    "group \"" + request.name + "\" (" + std::to_string(request.size) +
                        " ranks) did not come about, its rank 0 has not called: " + id.status().message());
    }
    spec.id = std::strtoull(id->c_str(), nullptr, 16);
  }
  // Whoever waits for an operation keeps the job alive through the engine.
  group->engine = std::shared_ptr<Engine>(shared_from_this(), engine_.get());
  group->communicator = engine_->make_communicator(std::move(spec));
  leases_.fetch_add(1);
  group->lease = std::shared_ptr<void>(nullptr, [job = weak_from_this()](void*) {
    const auto alive = job.lock();
    if (alive && alive->leases_.fetch_sub(1) == 1) alive->leave();
  });
  return group;
}

}  // namespace neuron
