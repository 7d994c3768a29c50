#include "transport/base/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "transport/base/check.h"

namespace neuron {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<int> descriptors;
  std::atomic<std::uint32_t> forks{0};
};

Registry& registry();

// fork() happens with the registry locked, so that the child finds it whole. The child's handler allocates nothing.
void before_fork() { registry().mutex.lock(); }
void after_fork_in_parent() { registry().mutex.unlock(); }
void after_fork_in_child() {
  auto& all = registry();
  for (const int descriptor : all.descriptors) ::close(descriptor);
  all.descriptors.clear();
  all.forks.fetch_add(1, std::memory_order_relaxed);
  all.mutex.unlock();
}

Registry& registry() {
  static Registry* const instance = [] {
    auto* made = new Registry;  // leaked: used until the process ends
    NEURON_CHECK(pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0, "pthread_atfork failed");
    return made;
  }();
  return *instance;
}

}  // namespace

void register_descriptor(int descriptor) {
  auto& all = registry();
  const std::lock_guard lock(all.mutex);
  all.descriptors.push_back(descriptor);
}

bool unregister_descriptor(int descriptor) {
  auto& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = std::find(all.descriptors.begin(), all.descriptors.end(), descriptor);
  if (found == all.descriptors.end()) return false;
  *found = all.descriptors.back();
  all.descriptors.pop_back();
  return true;
}

std::uint32_t fork_count() { return registry().forks.load(std::memory_order_relaxed); }

}  // namespace neuron
