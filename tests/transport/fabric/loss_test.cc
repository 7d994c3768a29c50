#include <gmock/gmock.h>

#include "rail_pair.h"

namespace neuron::fabric::test {
namespace {

using ::testing::HasSubstr;

/// A rank 1 in another process, which answers each message until it is killed.
class EchoProcess {
 public:
  explicit EchoProcess(const Options& options)
      : child_([this, options] {
          const auto rail = open(options, kClock);
          if (!rail) return 1;
          up_.put((*rail)->address());
          if (!(*rail)->connect(0, down_.get())) return 2;
          Recorder seen;
          for (std::size_t answered = 0;;) {
            (*rail)->poll(seen);
            if (answered == seen.messages.size()) continue;
            Header header = seen.messages[answered].header;
            header.source = 1;
            if ((*rail)->send(0, header, seen.messages[answered].payload) == Posted::done) ++answered;
          }
        }) {}

  Status connect(Rail& rail) {
    const auto address = up_.get();
    down_.put(rail.address());
    return rail.connect(1, address);
  }
  void kill_now() { child_.kill_now(); }

 private:
  Pipe up_;
  Pipe down_;
  Child child_;
};

/// Sends until the peer is reported lost.
bool is_lost_soon(Rail& rail, Recorder& seen, Nanoseconds limit) {
  std::uint64_t sequence = 100;
  return poll_until(
      [&] {
        if (rail.send(1, header_from(0, sequence, 0), {}) == Posted::done) ++sequence;
        rail.poll(seen);
        return !seen.lost.empty();
      },
      limit);
}

TEST(PeerLost, IsReportedOnce_WhenTheProcessIsKilled) {
  Options options = on_loopback();
  options.stall_limit = 500 * kMillisecond;
  EchoProcess peer(options);
  const auto rail = open_or_fail(options);
  ASSERT_TRUE(peer.connect(*rail));
  Recorder seen;
  bool sent = false;
  ASSERT_TRUE(poll_until([&] {
    if (!sent) sent = rail->send(1, header_from(0, 1, 0), {}) == Posted::done;
    return rail->poll(seen), !seen.messages.empty();
  }));

  peer.kill_now();
  ASSERT_TRUE(is_lost_soon(*rail, seen, 10 * kSecond));
  EXPECT_EQ(seen.lost.front().first, 1);
  EXPECT_EQ(seen.lost.front().second.code(), Code::peer_lost);
  EXPECT_THAT(seen.lost.front().second.message(), HasSubstr("ank 1"));
  EXPECT_EQ(rail->send(1, header_from(0, 2, 0), {}), Posted::lost);
  EXPECT_FALSE(rail->is_connected(1));
  poll_until([&] { return rail->poll(seen), false; }, 100 * kMillisecond);
  EXPECT_EQ(seen.lost.size(), 1U);
}

TEST(PeerLost, EndsItsWrites_BeforeItIsReported) {
  Options options = on_loopback();
  options.stall_limit = 500 * kMillisecond;
  EchoProcess peer(options);
  const auto rail = open_or_fail(options);
  ASSERT_TRUE(peer.connect(*rail));
  Recorder seen;
  bool sent = false;
  ASSERT_TRUE(poll_until([&] {
    if (!sent) sent = rail->send(1, header_from(0, 1, 0), {}) == Posted::done;
    return rail->poll(seen), !seen.messages.empty();
  }));
  peer.kill_now();

  const Block block = *rail->take_block();
  std::uint64_t cookie = 0;
  ASSERT_TRUE(poll_until(
      [&] {
        if (rail->write(1, block, kBlockBytes, RemoteBlock{0, 1}, 0, cookie) == Posted::done) ++cookie;
        rail->poll(seen);
        return !seen.lost.empty();
      },
      10 * kSecond));
  EXPECT_EQ(seen.done.size(), cookie);
}

TEST(PeerLost, LeavesOthersAlone) {
  Options options = on_loopback();
  options.stall_limit = 300 * kMillisecond;
  EchoProcess victim(options);
  const auto rail = open_or_fail(options);
  const auto other = open_or_fail(options);
  ASSERT_TRUE(victim.connect(*rail));
  ASSERT_TRUE(rail->connect(2, other->address()));
  ASSERT_TRUE(other->connect(0, rail->address()));
  victim.kill_now();
  Recorder seen;
  Recorder other_seen;
  std::uint64_t sent = 0;
  ASSERT_TRUE(poll_until([&] {
    (void)rail->send(1, header_from(0, 0, 0), {});
    if (sent < 2'000 && rail->send(2, header_from(0, sent, 0), {}) == Posted::done) ++sent;
    rail->poll(seen);
    other->poll(other_seen);
    return !seen.lost.empty() && other_seen.messages.size() == 2'000;
  }));
  EXPECT_TRUE(rail->is_connected(2));
  rail->disconnect(1);
  EXPECT_EQ(rail->send(1, header_from(0, 0, 0), {}), Posted::lost);
}

TEST(PeerLost, IsDecidedByTheClock_WhenThePeerTakesNothing) {
  ManualClock clock;
  Options options = on_loopback();
  options.stall_limit = 30 * kSecond;
  RailPair pair(options, clock);
  const std::vector<std::byte> payload(kEagerBytes);
  ASSERT_EQ(pair.send(0, header_from(0, 0, payload.size()), payload), Posted::done);
  // Rank 1 does not poll from here on.
  ASSERT_TRUE(
      poll_until([&] { return pair.rails[0]->send(1, header_from(0, 0, payload.size()), payload) == Posted::again; }));
  clock.advance(29 * kSecond);
  pair.rails[0]->poll(pair.seen[0]);
  EXPECT_TRUE(pair.seen[0].lost.empty());
  ASSERT_TRUE(poll_until([&] {
    (void)pair.rails[0]->send(1, header_from(0, 0, payload.size()), payload);
    clock.advance(kSecond);
    pair.rails[0]->poll(pair.seen[0]);
    return !pair.seen[0].lost.empty();
  }));
  EXPECT_THAT(pair.seen[0].lost.front().second.message(), HasSubstr("has taken nothing"));
}

}  // namespace
}  // namespace neuron::fabric::test
