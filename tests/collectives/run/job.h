// Job: a whole job in one process: an engine per rank over transports that the test chooses; ranks run as threads.
// Poisons and fabric addresses travel through LocalControl. A resource of a test; everything is called from the test's
// thread, except what run() gives to the ranks' threads.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/run/engine.h"

namespace neuron::testing {

/// The engines of a job as far as they exist; control messages to the others go nowhere. Any thread.
class Directory {
 public:
  explicit Directory(Rank world) : engines_(static_cast<std::size_t>(world)) {}

  void enter(Rank rank, Engine* engine) {
    const std::lock_guard lock(mutex_);
    engines_[static_cast<std::size_t>(rank)] = engine;
  }
  void deliver(Rank source, Rank destination, const std::vector<std::byte>& bytes) {
    const std::lock_guard lock(mutex_);
    Engine* engine = engines_[static_cast<std::size_t>(destination)];
    if (engine != nullptr) engine->deliver(source, bytes);
  }
  [[nodiscard]] Rank world() const { return static_cast<Rank>(engines_.size()); }

 private:
  std::mutex mutex_;
  std::vector<Engine*> engines_;
};

/// Control messages between the engines of one process. Withheld ones are delivered by release().
class LocalControl final : public ControlChannel {
 public:
  LocalControl(Directory& directory, Rank rank) : directory_(directory), rank_(rank) {}

  void send(Rank destination, std::vector<std::byte> bytes) override {
    {
      const std::lock_guard lock(mutex_);
      if (withholds_) return withheld_.emplace_back(destination, std::move(bytes)), void();
    }
    directory_.deliver(rank_, destination, bytes);
  }
  void broadcast(std::vector<std::byte> bytes) override {
    for (Rank rank = 0; rank < directory_.world(); ++rank) {
      if (rank != rank_) send(rank, bytes);
    }
  }
  void withhold() {
    const std::lock_guard lock(mutex_);
    withholds_ = true;
  }
  void release() {
    std::vector<std::pair<Rank, std::vector<std::byte>>> messages;
    {
      const std::lock_guard lock(mutex_);
      withholds_ = false;
      messages.swap(withheld_);
    }
    for (const auto& [destination, bytes] : messages) directory_.deliver(rank_, destination, bytes);
  }

 private:
  Directory& directory_;
  const Rank rank_;
  std::mutex mutex_;
  bool withholds_ = false;
  std::vector<std::pair<Rank, std::vector<std::byte>>> withheld_;
};

/// One rank as the body of a test sees it.
struct LocalRank {
  Rank rank = 0;
  Rank world = 1;
  Engine& engine;
  Communicator& group;

  /// Issues, waits, returns the final status.
  Status run(Request request) const {
    auto issued = group.issue(std::move(request));
    if (!issued) return issued.status();
    return finish(*issued);
  }
  Status finish(const OperationRef& operation) const {
    while (engine.wait(*operation, kNever) != WaitOutcome::done) {
    }
    return operation->status();
  }
};

struct JobSettings {
  Nanoseconds timeout = 20 * kSecond;  // of the group
  bool background_thread = true;
  const Clock* clock = nullptr;
  CompletionSink* completions = nullptr;
};

class Job {
 public:
  static constexpr std::uint64_t kGroup = 7;

  /// `equip` gives each rank its transports, before there is any engine.
  Job(Rank world, const std::function<void(Rank, EngineOptions&)>& equip, const JobSettings& settings = {})
      : directory_(world) {
    std::vector<EngineOptions> all(static_cast<std::size_t>(world));
    std::vector<PeerInfo> peers;
    for (Rank rank = 0; rank < world; ++rank) {
      EngineOptions& options = all[static_cast<std::size_t>(rank)];
      options.doorbell = std::make_shared<Doorbell>();
      equip(rank, options);
      const auto number = static_cast<std::uint32_t>(rank);
      PeerInfo peer{nonce(rank), 4000 + number, "host-" + std::to_string(rank), {}};
      if (options.shared_memory) peer.shared_memory_address = options.shared_memory->address();
      peers.push_back(std::move(peer));
      controls_.push_back(std::make_unique<LocalControl>(directory_, rank));
    }
    for (Rank rank = 0; rank < world; ++rank) {
      EngineOptions& options = all[static_cast<std::size_t>(rank)];
      options.rank = rank;
      options.generation = 1;
      options.peers = peers;
      if (options.topology.world() == 0) options.topology = Topology::single_host(world);
      options.control = controls_[static_cast<std::size_t>(rank)].get();
      options.background_thread = settings.background_thread;
      options.clock = settings.clock;
      options.completions = settings.completions;
      engines_.push_back(std::make_unique<Engine>(std::move(options)));
      directory_.enter(rank, engines_.back().get());
    }
    for (Rank rank = 0; rank < world; ++rank) groups_.push_back(make_group(rank, kGroup, "default", settings.timeout));
  }
  ~Job() {
    for (Rank rank = 0; rank < world(); ++rank) destroy(rank);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  static std::uint64_t nonce(Rank rank) { return 0x1234'5678'0000'1000ULL + static_cast<std::uint64_t>(rank); }

  [[nodiscard]] Rank world() const { return static_cast<Rank>(engines_.size()); }
  Engine& engine(Rank rank) { return *engines_[static_cast<std::size_t>(rank)]; }
  Communicator& group(Rank rank) { return *groups_[static_cast<std::size_t>(rank)]; }
  LocalControl& control(Rank rank) { return *controls_[static_cast<std::size_t>(rank)]; }
  LocalRank local(Rank rank) { return {rank, world(), engine(rank), group(rank)}; }

  /// Another group of all ranks, as one rank makes it.
  std::unique_ptr<Communicator> make_group(Rank rank, std::uint64_t id, std::string name,
                                           Nanoseconds timeout = 20 * kSecond) {
    std::vector<Rank> members(engines_.size());
    std::iota(members.begin(), members.end(), 0);
    return engine(rank).make_communicator({id, std::move(name), members, timeout});
  }
  /// Ends one rank in good order.
  void destroy(Rank rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (index < groups_.size()) groups_[index].reset();
    directory_.enter(rank, nullptr);
    engines_[index].reset();
  }

  /// Runs body on every rank, each in its own thread, and joins them.
  void run(const std::function<void(const LocalRank&)>& body) {
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < world(); ++rank) {
      threads.emplace_back([&, rank] { body(local(rank)); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  Directory directory_;
  std::vector<std::unique_ptr<LocalControl>> controls_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<std::unique_ptr<Communicator>> groups_;
};

template <typename T>
Buffer buffer_of(std::vector<T>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T), MemoryDomain::host};
}

}  // namespace neuron::testing
