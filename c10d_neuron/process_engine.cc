#include "c10d_neuron/process_engine.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <future>
#include <optional>
#include <thread>

#include "c10d_neuron/gil.h"
#include "c10d_neuron/per_process.h"
#include "transport/base/log.h"

namespace neuron {

namespace {

Result<Config> read_config() {
  auto read = config_from_environment();
  if (!read.is_ok()) return read.status();
  set_log_level(read->config.log);
  for (const std::string& warning : read->warnings) log_once(LogLevel::warning, warning);
  return std::move(read->config);
}

/// Runs what may block for long. On Python's main thread it runs elsewhere, so that Ctrl-C can be answered meanwhile;
/// an interrupt calls `cancel` and leaves it to end by itself, so both own what they use.
template <typename Value>
Result<Value> interruptible(bool answers, std::function<Result<Value>()> body, const std::function<void()>& cancel) {
  if (!answers || !is_main_thread()) return body();
  auto promise = std::make_shared<std::promise<Result<Value>>>();
  auto result = promise->get_future();
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([promise, body = std::move(body)] {
    try {
      promise->set_value(body());
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  while (result.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) {
    try {
      raise_pending_interrupt();
    } catch (...) {
      cancel();
      throw;
    }
  }
  return result.get();
}

}  // namespace

std::shared_ptr<ProcessEngine> process_engine() { return {std::shared_ptr<void>(), &PerProcess<ProcessEngine>::get()}; }

std::shared_ptr<Job> ProcessEngine::find(const std::vector<std::int64_t>& global_ranks) {
  const std::lock_guard lock(mutex_);
  std::erase_if(jobs_, [](const auto& job) { return job.expired(); });
  std::shared_ptr<Job> best;
  for (const auto& weak : jobs_) {
    const auto job = weak.lock();
    if (!job || job->is_over() || !job->covers(global_ranks)) continue;
    const bool is_better = !best || job->world() > best->world() ||
                           (job->world() == best->world() && job->generation() < best->generation());
    if (is_better) best = job;
  }
  return best;
}

Result<std::shared_ptr<Group>> ProcessEngine::join(const GroupRequest& request) {
  const auto config = read_config();
  if (!config.is_ok()) return config.status();
  const auto store = std::make_shared<StoreAdapter>(request.store);
  const auto known = find(members_of(request));
  if (!known) set_log_identity("rank " + std::to_string(members_of(request)[static_cast<std::size_t>(request.rank)]));
  using Outcome = std::pair<std::shared_ptr<Job>, std::shared_ptr<Group>>;
  const auto body = [request, store, known, config = *config]() -> Result<Outcome> {
    std::shared_ptr<Job> job = known;
    if (!job) {
      auto joined = Job::join(request, store, config);
      if (!joined.is_ok()) return joined.status();
      job = std::move(*joined);
    }
    auto group = job->make_group(request, *store);
    if (!group.is_ok()) return group.status();
    return Outcome{job, std::move(*group)};
  };
  auto outcome = interruptible<Outcome>(config->interrupts, body, [store] { store->cancel(); });
  if (!outcome.is_ok()) return outcome.status();
  if (!known) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(outcome->first);
  }
  return std::move(outcome->second);
}

std::vector<std::shared_ptr<const Job>> ProcessEngine::jobs() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const Job>> alive;
  for (const auto& weak : jobs_) {
    if (auto job = weak.lock(); job && !job->is_over()) alive.push_back(std::move(job));
  }
  return alive;
}

void ProcessEngine::leave_all() {
  std::vector<std::shared_ptr<Job>> alive;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& weak : jobs_) {
      if (auto job = weak.lock()) alive.push_back(std::move(job));
    }
  }
  for (const auto& job : alive) {
    job->leave();
    new auto(job);  // leaked: other threads may be inside it, and the process ends anyway
  }
}

}  // namespace neuron
