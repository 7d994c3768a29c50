// InMemoryStore: a KeyValueStore for ranks that are threads of one process.
// A resource, shared by the ranks; any thread. `get` fails with a timeout only.
#pragma once
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "c10d_neuron/control/control.h"

namespace neuron::control {

class InMemoryStore final : public KeyValueStore {
 public:
  Status set(const std::string& key, const std::string& value) override {
    {
      const std::lock_guard lock(mutex_);
      values_[key] = value;
    }
    changed_.notify_all();
    return {};
  }

  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    const bool exists = changed_.wait_for(lock, timeout, [&] { return values_.contains(key); });
    if (!exists) return Status(Code::timeout, "The store has no key " + key + ".");
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace neuron::control
