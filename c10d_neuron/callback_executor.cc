#include "c10d_neuron/callback_executor.h"

#include <signal.h>

#include <algorithm>
#include <exception>
#include <string>
#include <thread>

#include "transport/base/log.h"

namespace neuron {

namespace {

void run_guarded(const CallbackExecutor::Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    log(LogLevel::error, std::string("a callback after an operation has failed: ") + error.what());
  }
}

}  // namespace

void CallbackExecutor::when_done(const OperationRef& operation, Action action) {
  std::unique_lock lock(mutex_);
  waiting_[operation.get()].push_back(std::move(action));
  lock.unlock();
  if (operation->notify_when_done()) return;
  // It is done: no call of completed() follows for us, but one for an earlier caller may have taken our action already.
  lock.lock();
  auto node = waiting_.extract(operation.get());
  if (!node.empty()) push(std::move(node.mapped()), operation, lock);
}

void CallbackExecutor::completed(OperationRef operation) {
  std::unique_lock lock(mutex_);
  auto node = waiting_.extract(operation.get());
  push(node.empty() ? std::vector<Action>{} : std::move(node.mapped()), std::move(operation), lock);
}

void CallbackExecutor::push(std::vector<Action> actions, OperationRef operation, std::unique_lock<std::mutex>& lock) {
  auto entry = Entry{std::move(actions), std::move(operation), std::chrono::steady_clock::now()};
  if (stopped_) {
    new Entry(std::move(entry));  // leaked: tensors must not be freed once the interpreter has gone
    return;
  }
  queue_.push_back(std::move(entry));
  const bool wake = idle_ > 0;
  if (!wake && threads_ == 0) start_thread();
  lock.unlock();
  if (wake) work_.notify_one();
}

void CallbackExecutor::start_thread() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([this] { run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ++threads_;
}

CallbackExecutor::Moment CallbackExecutor::front_may_start() const {
  if (running_.empty()) return Moment::min();
  const Moment newest = *std::max_element(running_.begin(), running_.end());
  return std::min(queue_.front().queued, newest) + kPatience;
}

void CallbackExecutor::run() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    const auto now = std::chrono::steady_clock::now();
    const bool is_idle = queue_.empty();
    const Moment until = is_idle ? now + kIdleLife : front_may_start();
    if (is_idle || until > now) {
      ++idle_;
      const bool expired = work_.wait_until(lock, until) == std::cv_status::timeout;
      --idle_;
      if (is_idle && expired && queue_.empty()) break;
      continue;
    }
    {
      Entry entry = std::move(queue_.front());
      queue_.pop_front();
      const auto place = running_.insert(running_.end(), now);
      // Somebody must be there to notice that this action blocks.
      if (idle_ == 0 && threads_ < kMaxThreads) start_thread();
      lock.unlock();
      for (const Action& action : entry.actions) run_guarded(action);
      entry = Entry{};
      lock.lock();
      running_.erase(place);
    }
  }
  --threads_;
  ended_.notify_all();
}

void CallbackExecutor::stop(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  stopped_ = true;
  new std::deque<Entry>(std::move(queue_));
  new auto(std::move(waiting_));
  queue_.clear();
  waiting_.clear();
  work_.notify_all();
  ended_.wait_for(lock, patience, [this] { return threads_ == 0; });
}

}  // namespace neuron
