#include "transport/base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <unordered_set>

namespace neuron {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"error", "warning", "info", "debug"};
std::atomic<LogLevel> g_threshold{LogLevel::warning};

struct Shared {
  std::mutex mutex;
  std::string identity;
  std::unordered_set<std::string> said;
};

Shared& shared() {
  static auto* const instance = new Shared;  // leaked: threads may log while the process ends
  return *instance;
}

}  // namespace

std::optional<LogLevel> log_level_named(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

void set_log_level(LogLevel level) { g_threshold.store(level, std::memory_order_relaxed); }

void set_log_identity(std::string identity) {
  const std::lock_guard lock(shared().mutex);
  shared().identity = std::move(identity);
}

bool logs(LogLevel level) { return level <= g_threshold.load(std::memory_order_relaxed); }

void log(LogLevel level, std::string_view message) {
  if (!logs(level)) return;
  std::string line = "c10d-neuron";
  {
    const std::lock_guard lock(shared().mutex);
    if (!shared().identity.empty()) line += " [" + shared().identity + "]";
  }
  line += " " + std::string(kNames[static_cast<std::size_t>(level)]) + ": " + std::string(message) + "\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

void log_once(LogLevel level, std::string_view message) {
  {
    const std::lock_guard lock(shared().mutex);
    if (!shared().said.emplace(message).second) return;
  }
  log(level, message);
}

}  // namespace neuron
