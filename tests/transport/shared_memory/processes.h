// Forked processes for tests: each runs a function and tells by its exit code whether it went well.
#pragma once
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace neuron::shared_memory {

/// A child that is killed, if need be, and waited for at the end. The child leaves with _exit, so nothing of the parent
/// runs twice.
class Child {
 public:
  explicit Child(const std::function<bool()>& body) : pid_(::fork()) {
    if (pid_ == 0) ::_exit(body() ? 0 : 1);
  }
  ~Child() {
    if (pid_ > 0) kill();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void kill() {
    ::kill(pid_, SIGKILL);
    succeeded();
  }
  /// Returns when all its threads stand still.
  void stop() const {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    ::waitpid(pid_, &status, WUNTRACED);
  }
  /// Waits for its end.
  bool succeeded() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t pid_;
};

/// A pipe made before the fork; each side uses one end.
class Channel {
 public:
  Channel() { [[maybe_unused]] const int made = ::pipe(ends_); }
  ~Channel() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void put(const std::vector<std::byte>& bytes) const {
    const std::size_t size = bytes.size();
    [[maybe_unused]] auto written = ::write(ends_[1], &size, sizeof size);
    written = ::write(ends_[1], bytes.data(), size);
  }
  [[nodiscard]] std::vector<std::byte> get() const {
    std::size_t size = 0;
    if (::read(ends_[0], &size, sizeof size) != static_cast<ssize_t>(sizeof size)) return {};
    std::vector<std::byte> bytes(size);
    [[maybe_unused]] const auto got = ::read(ends_[0], bytes.data(), size);
    return bytes;
  }

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace neuron::shared_memory
