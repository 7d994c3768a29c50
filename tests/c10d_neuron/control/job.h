// What the tests of the control plane share: a listener that remembers, and a job whose ranks are threads of this
// process.
#pragma once
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "c10d_neuron/control/in_memory_store.h"
#include "topology/host_facts.h"

namespace neuron::control {

using namespace std::chrono_literals;

class Ear final : public Listener {
 public:
  void on_message(Rank source, std::span<const std::byte> bytes) override {
    note([&] { messages[source].emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size()); });
  }
  void on_death(Rank rank, const std::string& why) override {
    note([&] {
      deaths[rank] = why;
      death_calls += 1;
    });
  }
  void on_leave(Rank rank) override {
    note([&] { leaves.push_back(rank); });
  }

  /// Whether `condition`, which may read the members, becomes true.
  bool hears(const std::function<bool()>& condition, std::chrono::milliseconds patience = 20s) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, condition);
  }

  std::map<Rank, std::vector<std::string>> messages;
  std::map<Rank, std::string> deaths;
  int death_calls = 0;
  std::vector<Rank> leaves;

 private:
  template <typename Change>
  void note(Change change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
};

inline std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

/// Options as a process on fake host `host` would give.
inline JoinOptions options_of(Rank rank, Rank world, int host, std::chrono::milliseconds timeout = 30s) {
  JoinOptions options;
  options.rank = rank;
  options.world = world;
  options.timeout = timeout;
  Config config;
  config.host = "fake" + std::to_string(host);
  const auto facts = HostFacts::of_this_process(config);
  options.self.host_name = config.host;
  options.self.host_identity = facts.identity();
  options.self.version = "test 1";
  return options;
}

/// Ranks as threads; rank r is on fake host r % hosts.
class Job {
 public:
  Job(Rank world, int hosts) : world_(world), hosts_(hosts), ears(static_cast<std::size_t>(world)) {
    for (auto& ear : ears) ear = std::make_unique<Ear>();
  }

  /// `adjust` may change a rank's options.
  void join(const std::function<void(JoinOptions&)>& adjust = [](JoinOptions&) {}) {
    results.clear();
    for (Rank rank = 0; rank < world_; ++rank) results.emplace_back(Status(Code::internal, "not tried"));
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < world_; ++rank) {
      threads.emplace_back([this, rank, &adjust] {
        auto options = options_of(rank, world_, rank % hosts_);
        adjust(options);
        results[static_cast<std::size_t>(rank)] = Control::join(options, store, *ears[static_cast<std::size_t>(rank)]);
      });
    }
    for (auto& thread : threads) thread.join();
  }

  [[nodiscard]] Control& operator[](Rank rank) { return **results[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] Ear& ear(Rank rank) { return *ears[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool all_joined() const {
    for (const auto& result : results) {
      if (!result) ADD_FAILURE() << result.status().message();
      if (!result) return false;
    }
    return true;
  }
  /// Which deaths were reported to whom, as text: "" is what a healthy job expects.
  [[nodiscard]] std::string deaths() const {
    std::string text;
    for (std::size_t rank = 0; rank < ears.size(); ++rank) {
      for (const auto& [dead, why] : ears[rank]->deaths) {
        text += std::to_string(rank) + " of " + std::to_string(dead) + ": " + why + "\n";
      }
    }
    return text;
  }
  void leave_all() {
    std::vector<std::thread> threads;
    for (auto& result : results) {
      if (result) threads.emplace_back([&] { result.value()->leave(); });
    }
    for (auto& thread : threads) thread.join();
  }

  InMemoryStore store;

 private:
  Rank world_;
  int hosts_;

 public:
  std::vector<std::unique_ptr<Ear>> ears;
  std::vector<Result<std::unique_ptr<Control>>> results;
};

}  // namespace neuron::control
