// Fork guard and Descriptor: what a forked child keeps, and what it must not close.
#include "transport/base/fork_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <utility>

#include "transport/base/descriptor.h"

namespace neuron {
namespace {

bool is_open(int number) { return ::fcntl(number, F_GETFD) >= 0; }
int open_something() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

bool holds_in_child(const std::function<bool()>& question) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(question() ? 0 : 1);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(ForkGuard, ClosesRegisteredDescriptors_InTheChildOnly) {
  const Descriptor guarded(open_something());
  const int plain = open_something();
  EXPECT_TRUE(holds_in_child([&] { return !is_open(guarded.number()) && is_open(plain); }));
  EXPECT_TRUE(is_open(guarded.number()));
  ::close(plain);
}

TEST(ForkGuard, LeavesAlone_WhatWasUnregistered) {
  const int number = open_something();
  register_descriptor(number);
  EXPECT_TRUE(unregister_descriptor(number));
  EXPECT_FALSE(unregister_descriptor(number));
  EXPECT_TRUE(holds_in_child([&] { return is_open(number); }));
  ::close(number);
}

TEST(ForkGuard, CountsForks) {
  const auto before = fork_count();
  EXPECT_TRUE(holds_in_child([&] {
    return fork_count() == before + 1 && forked_child() && holds_in_child([&] { return fork_count() == before + 2; });
  }));
  EXPECT_EQ(fork_count(), before);
}

TEST(Descriptor, ClosesAtItsEnd) {
  int number = -1;
  {
    const Descriptor descriptor(open_something());
    number = descriptor.number();
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(Descriptor, MovesItsDescriptor) {
  Descriptor first(open_something());
  const int number = first.number();
  Descriptor second(std::move(first));
  EXPECT_FALSE(first.is_valid());  // NOLINT(bugprone-use-after-move): empty by contract
  EXPECT_EQ(second.number(), number);
  second = Descriptor();
  EXPECT_FALSE(is_open(number));
}

TEST(Descriptor, DoesNotCloseANumberThatBelongsToSomebodyElse_InAChild) {
  auto inherited = std::make_unique<Descriptor>(open_something());
  EXPECT_TRUE(holds_in_child([&] {
    const int reused = open_something();
    const bool is_same_number = reused == inherited->number();
    inherited.reset();
    return is_same_number && is_open(reused);
  }));
}

}  // namespace
}  // namespace neuron
