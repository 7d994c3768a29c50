// StoreAdapter: torch's c10d store as the control plane's KeyValueStore. A resource; keeps the store alive. Any thread,
// without the GIL (a store written in Python takes it itself). Waiting ends early when cancel() is called.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <string>

#include "c10d_neuron/control/control.h"

namespace neuron {

class StoreAdapter final : public control::KeyValueStore {
 public:
  explicit StoreAdapter(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override;
  /// From now on waits end within a second, as aborted.
  void cancel() { is_cancelled_.store(true); }

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  std::atomic<bool> is_cancelled_{false};
};

}  // namespace neuron
