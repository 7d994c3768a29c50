// What the fabric's tests share: a recorder of events, a pair of connected rails, polling with a deadline, and a second
// process.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "transport/base/clock.h"
#include "transport/base/random.h"
#include "transport/fabric/open.h"

namespace neuron::fabric::test {

inline const SteadyClock kClock;

struct Message {
  Rank source = kNoRank;
  Header header;
  std::vector<std::byte> payload;
};

class Recorder final : public TransportEvents {
 public:
  void on_message(Rank source, const Header& header, std::span<const std::byte> payload) override {
    messages.push_back({source, header, {payload.begin(), payload.end()}});
  }
  void on_written(std::uint32_t immediate) override { written.push_back(immediate); }
  void on_write_done(std::uint64_t cookie, const Status& status) override { done.emplace_back(cookie, status); }
  void on_peer_lost(Rank peer, const Status& why) override { lost.emplace_back(peer, why); }

  std::vector<Message> messages;
  std::vector<std::uint32_t> written;
  std::vector<std::pair<std::uint64_t, Status>> done;
  std::vector<std::pair<Rank, Status>> lost;
};

/// Calls `step` until it returns true or the time is up; returns whether it did.
inline bool poll_until(const std::function<bool()>& step, Nanoseconds limit = 20 * kSecond) {
  const Nanoseconds end = kClock.now() + limit;
  while (kClock.now() < end) {
    if (step()) return true;
    std::this_thread::yield();  // the peer may need this core
  }
  return false;
}

/// An environment variable that lets a developer run the suite over another provider, library or interface.
inline std::string chosen(const char* variable, const char* fallback) {
  const char* value = std::getenv(variable);
  return value == nullptr ? fallback : value;
}

inline Options on_loopback() {
  Options options;
  options.provider = chosen("FABRIC_TEST_PROVIDER", "net");
  options.library = chosen("FABRIC_TEST_LIBRARY", "");
  options.network_interface = chosen("FABRIC_TEST_INTERFACE", "127.0.0.1");
  return options;
}

/// Ends the test when there is no rail.
inline std::unique_ptr<Rail> open_or_fail(const Options& options, const Clock& clock = kClock) {
  auto rail = open(options, clock);
  if (!rail) throw std::runtime_error(rail.status().message());
  return std::move(*rail);
}

inline Header header_from(Rank source, std::uint64_t sequence, std::size_t length) {
  Header header;
  header.source = static_cast<std::uint32_t>(source);
  header.sequence = sequence;
  header.length = length;
  header.kind = MessageKind::eager;
  return header;
}

inline std::vector<std::byte> random_bytes(Random& random, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = random.next();
    std::memcpy(bytes.data() + i, &word, std::min(sizeof word, count - i));
  }
  return bytes;
}

/// FNV-1a.
inline std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0xCBF29CE484222325ULL;
  for (const std::byte one : bytes) sum = (sum ^ static_cast<std::uint64_t>(one)) * 0x100000001B3ULL;
  return sum;
}

/// Two connected rails in this process: rank 0 and rank 1.
struct RailPair {
  explicit RailPair(const Options& options = on_loopback(), const Clock& clock = kClock) {
    for (auto& rail : rails) rail = open_or_fail(options, clock);
    EXPECT_TRUE(rails[0]->connect(1, rails[1]->address()));
    EXPECT_TRUE(rails[1]->connect(0, rails[0]->address()));
  }

  void poll() {
    for (int rank = 0; rank < 2; ++rank) rails[rank]->poll(seen[rank]);
  }
  bool poll_until(const std::function<bool()>& is_done, Nanoseconds limit = 20 * kSecond) {
    return test::poll_until([&] { return poll(), is_done(); }, limit);
  }
  /// Sends, polling both sides as long as there is no room.
  Posted send(Rank from, const Header& header, std::span<const std::byte> payload) {
    Posted posted = Posted::again;
    poll_until([&] { return (posted = rails[from]->send(1 - from, header, payload)) != Posted::again; });
    return posted;
  }

  std::unique_ptr<Rail> rails[2];
  Recorder seen[2];
};

/// A forked child that runs `body` and exits with its return value; killed, if it still runs, when the object goes.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ == 0) ::_exit(body());
  }
  ~Child() { kill_now(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void kill_now() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  /// Its exit code, -1 if it was ended by a signal, -2 when the time is up.
  int wait(Nanoseconds limit = 30 * kSecond) {
    int status = 0;
    if (!poll_until([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, limit)) return -2;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
};

/// A pipe that two processes exchange addresses over.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe(ends_), 0); }
  ~Pipe() {
    for (const int end : ends_) ::close(end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void put(std::span<const std::byte> bytes) const {
    const auto size = static_cast<std::uint32_t>(bytes.size());
    if (::write(ends_[1], &size, sizeof size) != sizeof size) std::abort();
    if (::write(ends_[1], bytes.data(), size) != static_cast<ssize_t>(size)) std::abort();
  }
  [[nodiscard]] std::vector<std::byte> get() const {
    std::uint32_t size = 0;
    if (::read(ends_[0], &size, sizeof size) != sizeof size) std::abort();
    std::vector<std::byte> bytes(size);
    if (::read(ends_[0], bytes.data(), size) != static_cast<ssize_t>(size)) std::abort();
    return bytes;
  }

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace neuron::fabric::test
