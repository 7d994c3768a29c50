#include "transport/base/wait_set.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <ctime>

#include "transport/base/check.h"

namespace neuron {

Doorbell::Doorbell() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  NEURON_CHECK(descriptor_.is_valid(), "eventfd failed: too many open files? Raise `ulimit -n`");
}

void Doorbell::ring(int descriptor) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(descriptor, &one, sizeof one);  // full counter: it is ringing already
}

void Doorbell::silence() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(descriptor_.number(), &count, sizeof count);
}

Timer::Timer() : descriptor_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  NEURON_CHECK(descriptor_.is_valid(), "timerfd_create failed: too many open files? Raise `ulimit -n`");
}

void Timer::start(Nanoseconds delay) const {
  itimerspec once{};
  once.it_value.tv_sec = delay / kSecond;
  once.it_value.tv_nsec = delay % kSecond;
  timerfd_settime(descriptor_.number(), 0, &once, nullptr);
}

WaitSet::WaitSet() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  NEURON_CHECK(epoll_.is_valid(), "epoll_create1 failed: too many open files? Raise `ulimit -n`");
}

void WaitSet::add(int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  NEURON_CHECK(epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, descriptor, &event) == 0, "epoll_ctl(ADD) failed");
}

void WaitSet::remove(int descriptor) { epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, descriptor, nullptr); }

WaitSet::Wake WaitSet::wait(Nanoseconds timeout) {
  std::array<epoll_event, 8> events{};
  timespec limit{};
  limit.tv_sec = timeout / kSecond;
  limit.tv_nsec = timeout % kSecond;
  const auto room = static_cast<int>(events.size());
  int ready = epoll_pwait2(epoll_.number(), events.data(), room, timeout == kNever ? nullptr : &limit, nullptr);
  if (ready < 0 && errno == ENOSYS) {  // Linux before 5.11
    const auto milliseconds =
        static_cast<int>(std::min<Nanoseconds>((timeout + kMillisecond - 1) / kMillisecond, INT_MAX));
    ready = epoll_wait(epoll_.number(), events.data(), room, timeout == kNever ? -1 : milliseconds);
  }
  if (ready > 0) return Wake::readable;
  return ready < 0 && errno == EINTR ? Wake::signal : Wake::timeout;
}

}  // namespace neuron
