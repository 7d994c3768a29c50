#include "c10d_neuron/loopback_groups.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "c10d_neuron/callback_executor.h"
#include "c10d_neuron/errors.h"
#include "c10d_neuron/per_process.h"
#include "transport/base/random.h"
#include "transport/loopback/loopback.h"

namespace neuron {

namespace {

/// All ranks' engines and the wire between them.
class LoopbackJob : public std::enable_shared_from_this<LoopbackJob> {
 public:
  LoopbackJob(const LoopbackOptions& options, const loopback::Personality& personality)
      : seed_(options.seed), hub_(options.world, personality) {
    const Topology topology =
        options.hosts.empty() ? Topology::single_host(options.world) : Topology::from_hosts(options.hosts);
    for (Rank rank = 0; rank < options.world; ++rank) {
      EngineOptions engine;
      engine.rank = rank;
      engine.generation = 1;
      engine.topology = topology;
      engine.doorbell = std::make_shared<Doorbell>();
      engine.fabric = hub_.endpoint(rank, engine.doorbell);
      engine.completions = &PerProcess<CallbackExecutor>::get();
      for (Rank peer = 0; peer < options.world; ++peer) {
        engine.peers.push_back({static_cast<std::uint64_t>(peer) + 1,
                                static_cast<std::uint32_t>(::getpid()),
                                options.hosts.empty() ? "loopback" : options.hosts[static_cast<std::size_t>(peer)],
                                {}});
      }
      engines_.push_back(std::make_unique<Engine>(std::move(engine)));
    }
  }

  std::shared_ptr<Group> make_group(Rank own, const GroupRequest& request) {
    auto group = std::make_shared<Group>();
    Engine& engine = *engines_[static_cast<std::size_t>(own)];
    GroupSpec spec;
    spec.name = request.name;
    spec.timeout = request.timeout.count() * kMillisecond;
    spec.id = id_of(own, request.name);
    group->global_ranks = request.global_ranks;
    for (const std::int64_t global : request.global_ranks) spec.members.push_back(static_cast<Rank>(global));
    group->engine = std::shared_ptr<Engine>(shared_from_this(), &engine);
    group->communicator = engine.make_communicator(std::move(spec));
    return group;
  }

 private:
  /// The n-th group that a rank makes under a name is the same on all ranks.
  std::uint64_t id_of(Rank own, const std::string& name) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t count = made_[{own, name}]++;
    return Random::mix(seed_ ^ std::hash<std::string>()(name)) + count;
  }

  const std::uint64_t seed_;
  loopback::Hub hub_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::mutex mutex_;
  std::map<std::pair<Rank, std::string>, std::uint64_t> made_;
};

class LoopbackSource final : public GroupSource {
 public:
  LoopbackSource(std::shared_ptr<LoopbackJob> job, Rank own) : job_(std::move(job)), own_(own) {}
  Result<std::shared_ptr<Group>> join(const GroupRequest& request) override { return job_->make_group(own_, request); }

 private:
  const std::shared_ptr<LoopbackJob> job_;
  const Rank own_;
};

loopback::Personality personality_of(const LoopbackOptions& options) {
  if (options.personality == "in_order") return loopback::Personality::in_order();
  if (options.personality == "efa_direct") return loopback::Personality::efa_direct(options.seed);
  if (options.personality == "no_remote_write") return loopback::Personality::no_remote_write(options.seed);
  raise(Status(Code::invalid_argument,
               "personality is \"" + options.personality + "\"; allowed are in_order, efa_direct and no_remote_write"));
}

}  // namespace

std::vector<c10::intrusive_ptr<ProcessGroupNeuron>> make_loopback_groups(const LoopbackOptions& options) {
  if (options.world < 1 ||
      (!options.hosts.empty() && options.hosts.size() != static_cast<std::size_t>(options.world))) {
    raise(Status(Code::invalid_argument, "hosts must be empty or name one host per rank, and world must be positive"));
  }
  const auto job = std::make_shared<LoopbackJob>(options, personality_of(options));
  GroupRequest request;
  request.size = options.world;
  request.name = "loopback";
  request.timeout = options.timeout;
  request.global_ranks.resize(static_cast<std::size_t>(options.world));
  std::iota(request.global_ranks.begin(), request.global_ranks.end(), std::int64_t{0});
  std::vector<c10::intrusive_ptr<ProcessGroupNeuron>> groups;
  for (Rank rank = 0; rank < options.world; ++rank) {
    groups.push_back(c10::make_intrusive<ProcessGroupNeuron>(
        c10::intrusive_ptr<c10d::Store>(), rank, options.world, job->make_group(rank, request),
        std::make_shared<LoopbackSource>(job, rank),
        c10::make_intrusive<ProcessGroupNeuron::Options>("neuron", options.timeout)));
  }
  return groups;
}

}  // namespace neuron
