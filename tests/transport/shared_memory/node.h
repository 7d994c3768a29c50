// Node: one rank of a test: an endpoint, its doorbell, and a record of what it heard.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/random.h"
#include "transport/base/wait_set.h"
#include "transport/shared_memory/endpoint.h"

namespace neuron::shared_memory {

inline constexpr const char* kToken = "a token that the job's processes share";
inline constexpr Nanoseconds kPatience = 20 * kSecond;

/// Calls `step` until it returns true; false when the patience of the tests is over.
inline bool eventually(const std::function<bool()>& step) {
  const SteadyClock clock;
  for (const Nanoseconds deadline = clock.now() + kPatience; clock.now() < deadline;) {
    if (step()) return true;
  }
  return false;
}

struct Message {
  Rank source;
  Header header;
  std::vector<std::byte> payload;
};

/// Records; `on_each`, if set, hears of each message instead.
class Recorder final : public TransportEvents {
 public:
  void on_message(Rank source, const Header& header, std::span<const std::byte> payload) override {
    if (on_each) return on_each(source, header, payload);
    messages.push_back({source, header, {payload.begin(), payload.end()}});
  }
  void on_written(std::uint32_t) override { ADD_FAILURE() << "nobody writes into shared memory"; }
  void on_write_done(std::uint64_t, const Status&) override { ADD_FAILURE() << "nobody writes into shared memory"; }
  void on_peer_lost(Rank peer, const Status& why) override { lost.emplace_back(peer, why); }

  std::function<void(Rank, const Header&, std::span<const std::byte>)> on_each;
  std::vector<Message> messages;
  std::vector<std::pair<Rank, Status>> lost;
};

struct Node {
  explicit Node(Rank rank, const std::string& token = kToken, std::uint32_t local_ranks = 4) {
    Options options;
    options.rank = rank;
    options.nonce = random_nonce();
    options.token = token;
    options.local_ranks = local_ranks;
    start(std::move(options));
  }
  explicit Node(Options options) { start(std::move(options)); }

  void poll() { endpoint->poll(events); }

  Doorbell doorbell;
  Recorder events;
  std::unique_ptr<Endpoint> endpoint;

 private:
  void start(Options options) {
    auto made = Endpoint::create(std::move(options), doorbell);
    if (!made.is_ok()) {
      ADD_FAILURE() << made.status().message();
      std::abort();
    }
    endpoint = std::move(*made);
  }
};

/// Node `a`, rank `a_rank`, connects to `b`, rank `b_rank`.
inline bool connect(Node& a, Rank a_rank, Node& b, Rank b_rank) {
  EXPECT_TRUE(a.endpoint->connect(b_rank, b.endpoint->address()).is_ok());
  return eventually([&] {
    a.poll();
    b.poll();
    return a.endpoint->is_connected(b_rank) && b.endpoint->is_connected(a_rank);
  });
}

inline std::vector<std::byte> bytes_of(const std::string& text) {
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}

/// Bytes that differ for each seed, to be checked on the other side.
inline void fill_with(std::span<std::byte> out, std::uint64_t seed) {
  Random random(seed);
  std::size_t at = 0;
  for (; at + 8 <= out.size(); at += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(out.data() + at, &word, sizeof word);
  }
  for (; at < out.size(); ++at) out[at] = static_cast<std::byte>(random.next());
}

inline bool is_filled_with(std::span<const std::byte> in, std::uint64_t seed) {
  std::vector<std::byte> expected(in.size());
  fill_with(expected, seed);
  return in.empty() || std::memcmp(in.data(), expected.data(), in.size()) == 0;
}

}  // namespace neuron::shared_memory
