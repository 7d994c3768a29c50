#include "c10d_neuron/store_adapter.h"

#include <algorithm>
#include <exception>

namespace neuron {

namespace {

constexpr std::chrono::milliseconds kSlice{1000};  // how soon cancel() is noticed

Status unavailable(const std::string& key, const std::exception& error) {
  return {Code::unavailable, "the c10d store has failed at key \"" + key + "\": " + error.what() +
                                 ". Is the process that serves it (usually rank 0) still running?"};
}

}  // namespace

Status StoreAdapter::set(const std::string& key, const std::string& value) {
  try {
    store_->set(key, value);
    return {};
  } catch (const std::exception& error) {
    return unavailable(key, error);
  }
}

Result<std::string> StoreAdapter::get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!is_cancelled_.load()) {
    const auto start = std::chrono::steady_clock::now();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - start);
    if (left.count() <= 0) {
      return Status(Code::timeout, "key \"" + key + "\" has not appeared in the c10d store within " +
                                       std::to_string(timeout.count()) + " ms");
    }
    const auto slice = std::min(left, kSlice);
    try {
      store_->wait({key}, slice);
      const auto value = store_->get(key);
      return std::string(value.begin(), value.end());
    } catch (const std::exception& error) {
      // Stores say by an exception that a wait has timed out, each in its own words; one that fails at once is broken.
      if (std::chrono::steady_clock::now() - start < slice * 9 / 10) return unavailable(key, error);
    }
  }
  return Status(Code::aborted, "interrupted while waiting for key \"" + key + "\"");
}

}  // namespace neuron
