// LoopbackJob: a whole job in one process: an engine per rank over the loopback transport, ranks run as threads.
// A resource of a test; `run` is called from the test's thread.
#pragma once
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "collectives/run/engine.h"
#include "transport/loopback/loopback.h"

namespace neuron::testing {

/// Control messages between the engines of one process.
class LocalControl final : public ControlChannel {
 public:
  LocalControl(std::vector<std::unique_ptr<Engine>>& engines, Rank rank) : engines_(engines), rank_(rank) {}
  void send(Rank destination, std::vector<std::byte> bytes) override {
    engines_[static_cast<std::size_t>(destination)]->deliver(rank_, bytes);
  }
  void broadcast(std::vector<std::byte> bytes) override {
    for (std::size_t rank = 0; rank < engines_.size(); ++rank) {
      if (static_cast<Rank>(rank) != rank_) engines_[rank]->deliver(rank_, bytes);
    }
  }

 private:
  std::vector<std::unique_ptr<Engine>>& engines_;
  const Rank rank_;
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

class LoopbackJob {
 public:
  explicit LoopbackJob(Rank world, loopback::Personality personality = {}, Nanoseconds timeout = 20 * kSecond,
                       bool background_thread = true)
      : hub_(world, personality) {
    for (Rank rank = 0; rank < world; ++rank) {
      EngineOptions options;
      options.rank = rank;
      options.peers.resize(static_cast<std::size_t>(world));
      for (Rank peer = 0; peer < world; ++peer) {
        options.peers[static_cast<std::size_t>(peer)] = {static_cast<std::uint64_t>(peer) + 1000, 1, "local", {}};
      }
      options.topology = Topology::single_host(world);
      options.doorbell = std::make_shared<Doorbell>();
      options.fabric = hub_.endpoint(rank, options.doorbell);
      options.background_thread = background_thread;
      engines_.push_back(std::make_unique<Engine>(std::move(options)));
      std::vector<Rank> members;
      for (Rank member = 0; member < world; ++member) members.push_back(member);
      groups_.push_back(engines_.back()->make_communicator({7, "default", members, timeout}));
    }
  }
  ~LoopbackJob() {
    groups_.clear();
    engines_.clear();
  }

  [[nodiscard]] Rank world() const { return static_cast<Rank>(engines_.size()); }
  Engine& engine(Rank rank) { return *engines_[static_cast<std::size_t>(rank)]; }
  Communicator& group(Rank rank) { return *groups_[static_cast<std::size_t>(rank)]; }
  loopback::Hub& hub() { return hub_; }

  /// Runs body on every rank, each in its own thread, and joins them.
  void run(const std::function<void(const LocalRank&)>& body) {
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < world(); ++rank) {
      threads.emplace_back([&, rank] { body(LocalRank{rank, world(), engine(rank), group(rank)}); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  loopback::Hub hub_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<std::unique_ptr<Communicator>> groups_;
};

template <typename T>
Buffer buffer_of(std::vector<T>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T), MemoryDomain::host};
}

}  // namespace neuron::testing
