// Who drives the engine, and how it sleeps.
#include <sched.h>
#include <signal.h>

#include <algorithm>

#include "collectives/run/engine_impl.h"

namespace neuron {
namespace {

constexpr Nanoseconds kLookUp = 100 * kMillisecond;   // Ctrl-C is checked so often
constexpr Nanoseconds kTick = 5 * kMillisecond;       // deadlines and questions
constexpr Nanoseconds kWatch = 2 * kMillisecond;      // the background thread looks in while the engine is in use
constexpr Nanoseconds kWatchFor = 20 * kMillisecond;  // and so long after
constexpr Nanoseconds kSoon = 20 * kMicrosecond;      // how long the issuer of a send may take to wait for it
constexpr Nanoseconds kPollActive = kMillisecond;     // providers without a wait object
constexpr Nanoseconds kPollIdle = 20 * kMillisecond;
constexpr Nanoseconds kLinger = kSecond;  // for what has been sent and not yet left

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void block_all_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

bool Engine::Impl::take_over() {
  // Submissions are taken before the inbox is looked at, and run after it: an operation's group was announced there
  // first.
  Operation* newest = submitted_.load(std::memory_order_relaxed) == nullptr ? nullptr : submitted_.exchange(nullptr);
  bool took = newest != nullptr;
  if (has_inbox_.load()) {
    std::vector<std::function<void(Executor&)>> jobs;
    {
      const std::lock_guard lock(inbox_mutex_);
      jobs.swap(inbox_);
      has_inbox_.store(false);
    }
    for (const auto& job : jobs) job(executor_);
    took = true;
  }
  submit_all(newest);
  return took;
}

void Engine::Impl::submit_all(Operation* newest) {
  Operation* oldest = nullptr;
  while (newest != nullptr) {  // the queue is a stack: turn it round
    Operation* next = newest->next_submitted_;
    newest->next_submitted_ = oldest;
    oldest = newest;
    newest = next;
  }
  while (oldest != nullptr) {
    Operation* next = oldest->next_submitted_;
    OperationRef operation(oldest);
    oldest->references_.fetch_sub(1);  // the queue's
    executor_.submit(std::move(operation));
    oldest = next;
  }
}

/// One round under the baton. Returns whether anything happened.
bool Engine::Impl::step() {
  bool moved = take_over();
  moved |= executor_.run();
  moved |= executor_.messenger().progress();
  moved |= executor_.run();
  return moved;
}

bool Engine::Impl::has_work() const {
  return executor_.has_work() || executor_.messenger_.has_unfinished() || has_inbox_.load() ||
         submitted_.load() != nullptr;
}

WaitOutcome Engine::Impl::wait(Operation& operation, Nanoseconds until) {
  const Nanoseconds look_up_at = clock_->now() + kLookUp;
  while (!operation.is_done()) {
    if (baton_.try_take()) {
      const WaitOutcome outcome = drive(operation, until, look_up_at);
      give_back();
      if (outcome != WaitOutcome::done) return outcome;
      continue;
    }
    wake_driver();
    const Nanoseconds now = clock_->now();
    if (now >= until) return WaitOutcome::expired;
    if (now >= look_up_at) return WaitOutcome::look_up;
    baton_.sleep(&operation, std::min({until, look_up_at}) - now, [&] { return operation.is_done(); });
  }
  return WaitOutcome::done;
}

WaitOutcome Engine::Impl::drive(Operation& operation, Nanoseconds until, Nanoseconds look_up_at) {
  disarm();
  if (is_timer_set_.load()) {
    background_timer_.stop();
    is_timer_set_.store(false);
  }
  Nanoseconds idle_since = 0;
  while (true) {
    const bool moved = step();
    if (operation.is_done()) return WaitOutcome::done;
    const Nanoseconds now = clock_->now();
    last_activity_ = now;
    if (now >= next_tick_) {
      next_tick_ = now + kTick;
      executor_.tick();
    }
    if (now >= until) return WaitOutcome::expired;
    if (now >= look_up_at) return WaitOutcome::look_up;
    if (moved) {
      idle_since = 0;
      continue;
    }
    if (idle_since == 0) idle_since = now;
    const auto wake = relax(idle_since, now, std::min({until, look_up_at, next_tick_}));
    if (wake == WaitSet::Wake::signal) return WaitOutcome::look_up;
  }
}

/// Nothing happened: spin briefly, then yield, then block.
WaitSet::Wake Engine::Impl::relax(Nanoseconds idle_since, Nanoseconds now, Nanoseconds until) {
  if (now - idle_since < spin_) {
    if (yields_) {
      sched_yield();
    } else {
      pause_briefly();
    }
    return WaitSet::Wake::timeout;
  }
  const Nanoseconds limit = must_poll_ ? kPollActive : kNever;
  return block(std::clamp<Nanoseconds>(until - now, 0, limit));
}

bool Engine::Impl::arm() {
  const auto arm_one = [](const std::unique_ptr<Transport>& transport) {
    return transport == nullptr || transport->arm();
  };
  if (arm_one(options_.shared_memory) && arm_one(options_.fabric)) return true;
  disarm();
  return false;
}

void Engine::Impl::disarm() {
  if (options_.shared_memory != nullptr) options_.shared_memory->disarm();
  if (options_.fabric != nullptr) options_.fabric->disarm();
}

/// Sleeps with the baton in hand until something arrives, somebody rings or `timeout` has passed.
WaitSet::Wake Engine::Impl::block(Nanoseconds timeout) {
  auto wake = WaitSet::Wake::readable;
  is_blocked_.store(true);
  if (submitted_.load() == nullptr && !has_inbox_.load() && arm()) {
    wake = wait_set_.wait(timeout);
    disarm();
    options_.doorbell->silence();
  }
  is_blocked_.store(false);
  return wake;
}

/// The holder, if it sleeps, looks at what has been submitted.
void Engine::Impl::wake_driver() {
  if (is_blocked_.load()) options_.doorbell->ring();
}

void Engine::Impl::wake_background() {
  const Background state = background_state_.load();
  if (state != Background::none && state != Background::awake) background_bell_.ring();
}

void Engine::Impl::ring() {
  wake_driver();
  wake_background();
}

/// Rings a little later: who issues a send or receive usually waits for it at once, and then nobody else is needed.
void Engine::Impl::ring_soon() {
  wake_driver();
  const Background state = background_state_.load();
  if (state == Background::none || state == Background::awake || is_timer_set_.exchange(true)) return;
  background_timer_.start(kSoon);
}

/// Gives the baton back so that the engine stays driven: to a sleeper, else to the background thread if there is work,
/// else the background thread watches over it.
void Engine::Impl::give_back() {
  while (true) {
    const Background state = background_state_.load();
    const bool leaves_work = has_work();
    const bool must_be_armed = state == Background::deep && !leaves_work;
    if (must_be_armed && !arm()) {
      step();
      continue;
    }
    if (baton_.release()) return;
    // Looked at after the release: what was submitted meanwhile found the baton held.
    if (leaves_work || submitted_.load() != nullptr || has_inbox_.load()) return wake_background();
    if (background_state_.load() == Background::idle) background_bell_.ring();
    return;
  }
}

void Engine::Impl::background() {
  block_all_signals();
  pthread_setname_np(pthread_self(), "c10d-neuron");
  while (!stops_.load()) {
    if (!baton_.try_take()) {
      background_state_.store(Background::idle);
      if (!baton_.try_take()) {
        background_idle_.wait(kNever);
        hear_background_bell();
        continue;
      }
    }
    background_state_.store(Background::awake);
    disarm();
    options_.doorbell->silence();
    background_drive();
    background_sleep();
  }
}

/// Drives while there is work and no waiter who would rather do it.
void Engine::Impl::background_drive() {
  Nanoseconds idle_since = 0;
  while (!stops_.load()) {
    const bool moved = step();
    const Nanoseconds now = clock_->now();
    if (moved) last_activity_ = now;
    if (now >= next_tick_) {
      next_tick_ = now + kTick;
      executor_.tick();
    }
    if (!has_work() || baton_.is_wanted()) return;
    if (moved) {
      idle_since = 0;
      continue;
    }
    if (idle_since == 0) idle_since = now;
    relax(idle_since, now, next_tick_);
  }
}

/// Gives the baton back and sleeps, as deeply as recent use allows.
void Engine::Impl::background_sleep() {
  if (stops_.load() || has_work() || baton_.is_wanted()) {
    background_state_.store(Background::awake);
    baton_.release();
    if (!stops_.load()) sched_yield();
    return;
  }
  const bool in_use = clock_->now() - last_activity_ < kWatchFor;
  const Nanoseconds timeout = in_use ? kWatch : must_poll_ ? kPollIdle : kNever;
  if (!in_use && !arm()) {
    baton_.release();
    return;
  }
  background_state_.store(in_use ? Background::watch : Background::deep);
  const bool woke_sleeper = baton_.release();
  const bool must_look_again = submitted_.load() != nullptr || has_inbox_.load();
  if (!must_look_again || woke_sleeper) {
    (in_use ? background_idle_ : background_deep_).wait(timeout);
  }
  hear_background_bell();
}

void Engine::Impl::hear_background_bell() {
  background_bell_.silence();
  background_timer_.stop();
  is_timer_set_.store(
      false);  // after the stop: an issuer in between finds a thread that is awake, or a timer that rings
  background_state_.store(Background::awake);
}

/// What has been sent may still have to leave; peers are waited for no longer than kLinger.
void Engine::Impl::drain_on_close() {
  take_over();
  executor_.close_all({Code::aborted, "The engine was shut down while the operation was in flight."});
  executor_.run();
  const Nanoseconds limit = clock_->now() + kLinger;
  while (executor_.messenger().has_unfinished() && clock_->now() < limit) {
    if (!step()) sched_yield();
  }
}

}  // namespace neuron
