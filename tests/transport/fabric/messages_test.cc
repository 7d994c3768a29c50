#include <gmock/gmock.h>
#include <poll.h>

#include <map>

#include "rail_pair.h"

namespace neuron::fabric::test {
namespace {

using ::testing::HasSubstr;

TEST(Messages, ArriveWhole_AtEverySize) {
  RailPair pair;
  Random random(1);
  for (std::size_t size = 0; size <= kEagerBytes; size += (size < 300 || size + 16 > kEagerBytes) ? 1 : 97) {
    const auto payload = random_bytes(random, size);
    const Header header = header_from(0, size, size);
    ASSERT_EQ(pair.send(0, header, payload), Posted::done);
    ASSERT_TRUE(pair.poll_until([&] { return !pair.seen[1].messages.empty(); })) << size;
    const Message& message = pair.seen[1].messages.front();
    ASSERT_EQ(message.source, 0);
    ASSERT_EQ(message.header, header);
    ASSERT_EQ(message.payload, payload) << size;
    pair.seen[1].messages.clear();
  }
}

/// Sends `count` random messages each way, at once, and checks every one.
void exchange_random_messages(const Options& options, std::uint64_t count) {
  const std::uint64_t seed = random_nonce();
  SCOPED_TRACE("seed " + std::to_string(seed));
  RailPair pair(options);
  Random random(seed);
  std::uint64_t sent[2] = {};
  std::uint64_t bytes_sent[2] = {};
  std::uint64_t checked[2] = {};
  const auto send_one = [&](Rank rank) {
    const auto payload = random_bytes(random, random.one_in(4) ? random.below(kEagerBytes + 1) : random.below(200));
    Header header = header_from(rank, sent[rank], payload.size());
    header.fingerprint = checksum(payload);
    if (pair.rails[rank]->send(1 - rank, header, payload) != Posted::done) return false;
    ++sent[rank];
    bytes_sent[rank] += payload.size();
    return true;
  };
  const auto step = [&] {
    for (Rank rank = 0; rank < 2; ++rank) {
      for (int burst = 0; burst < 32 && sent[rank] < count && send_one(rank);) ++burst;
      pair.rails[rank]->poll(pair.seen[rank]);
      for (const Message& message : pair.seen[rank].messages) {
        EXPECT_EQ(message.header.fingerprint, checksum(message.payload));
        EXPECT_EQ(message.header.length, message.payload.size());
        ++checked[rank];
      }
      pair.seen[rank].messages.clear();
    }
    return checked[0] == count && checked[1] == count;
  };
  EXPECT_TRUE(poll_until(step, 60 * kSecond)) << checked[0] << " and " << checked[1] << " of " << count;
  EXPECT_EQ(pair.rails[0]->traffic(1).messages, count);
  EXPECT_EQ(pair.rails[0]->traffic(1).bytes, bytes_sent[0]);
  EXPECT_EQ(pair.rails[0]->dropped(), Dropped{});
}

TEST(Messages, AreAllRight_WhenTwentyThousandCross) { exchange_random_messages(on_loopback(), 20'000); }

TEST(Messages, AreAllRight_InMessagesMode) {
  Options options = on_loopback();
  options.remote_write = false;
  exchange_random_messages(options, 5'000);
}

TEST(Messages, Pass_WhenBothSidesSendFirst) {
  for (int round = 0; round < 100; ++round) {
    RailPair pair;
    bool sent[2] = {};
    ASSERT_TRUE(pair.poll_until([&] {
      for (Rank rank = 0; rank < 2; ++rank) {
        if (!sent[rank]) sent[rank] = pair.rails[rank]->send(1 - rank, header_from(rank, 0, 0), {}) == Posted::done;
      }
      return pair.seen[0].messages.size() == 1 && pair.seen[1].messages.size() == 1;
    })) << "round "
        << round;
  }
}

TEST(Messages, AreRefusedForNow_WhenTheReceiverDoesNotPoll) {
  RailPair pair;
  const std::vector<std::byte> payload(kEagerBytes, std::byte{7});
  ASSERT_EQ(pair.send(0, header_from(0, 0, payload.size()), payload), Posted::done);
  std::uint64_t sent = 1;
  while (pair.rails[0]->send(1, header_from(0, sent, payload.size()), payload) == Posted::done) {
    ASSERT_LT(++sent, 100'000U);
  }
  ASSERT_TRUE(pair.poll_until([&] { return pair.seen[1].messages.size() == sent; }));
  EXPECT_EQ(pair.send(0, header_from(0, 0, 0), {}), Posted::done);
}

TEST(Messages, AreDroppedAndCounted_WhenMalformed) {
  RailPair pair;
  Header header = header_from(0, 0, 0);
  for (const std::uint8_t kind : {std::uint8_t{0}, kMessageKinds, std::uint8_t{255}}) {
    header.kind = static_cast<MessageKind>(kind);
    ASSERT_EQ(pair.send(0, header, {}), Posted::done);
  }
  ASSERT_TRUE(pair.poll_until([&] { return pair.rails[1]->dropped().malformed == 3; }));
  EXPECT_TRUE(pair.seen[1].messages.empty());
}

TEST(Messages, OfUnknownRanksTakeBoundedMemory) {
  RailPair pair;
  const std::vector<std::byte> payload(kEagerBytes);
  for (int i = 0; i < 2'000; ++i) {
    // Ranks that nobody knows, and one that is none.
    const auto source = static_cast<Rank>(i % 2 == 0 ? 77 + i : -5);
    ASSERT_EQ(pair.send(0, header_from(source, 0, payload.size()), payload), Posted::done);
  }
  ASSERT_EQ(pair.send(0, header_from(0, 0, 0), {}), Posted::done);
  ASSERT_TRUE(pair.poll_until([&] { return pair.seen[1].messages.size() == 1; }));
  // Kept are at most 4 MiB, so about 510 of the 1,000 that name a rank.
  EXPECT_GE(pair.rails[1]->dropped().unknown, 1'480U);
  EXPECT_LT(pair.rails[1]->dropped().unknown, 1'520U);
}

TEST(Messages, Wait_WhenTheirSenderIsNotConnectedYet) {
  const auto early = open_or_fail(on_loopback());
  const auto late = open_or_fail(on_loopback());
  ASSERT_TRUE(early->connect(1, late->address()));
  Recorder early_seen;
  Recorder late_seen;
  constexpr std::uint64_t kSent = 3;
  std::uint64_t sent = 0;
  ASSERT_TRUE(poll_until([&] {
    if (sent < kSent && early->send(1, header_from(0, sent, 0), {}) == Posted::done) ++sent;
    early->poll(early_seen);
    late->poll(late_seen);
    return sent == kSent && late->arm();
  }));
  EXPECT_TRUE(late_seen.messages.empty());
  ASSERT_TRUE(late->connect(0, early->address()));
  ASSERT_TRUE(poll_until([&] { return late->poll(late_seen), late_seen.messages.size() == kSent; }));
  for (std::uint64_t i = 0; i < kSent; ++i) EXPECT_EQ(late_seen.messages[i].header.sequence, i);
  EXPECT_EQ(late->dropped(), Dropped{});
}

TEST(Messages, ReachTheSuccessor_WhenAPeerIsConnectedAnew) {
  RailPair pair;
  ASSERT_EQ(pair.send(0, header_from(0, 0, 0), {}), Posted::done);
  ASSERT_TRUE(pair.poll_until([&] { return pair.seen[1].messages.size() == 1; }));
  pair.rails[1] = open_or_fail(on_loopback());
  ASSERT_TRUE(pair.rails[0]->connect(1, pair.rails[1]->address()));
  ASSERT_TRUE(pair.rails[1]->connect(0, pair.rails[0]->address()));
  ASSERT_EQ(pair.send(0, header_from(0, 1, 0), {}), Posted::done);
  ASSERT_EQ(pair.send(1, header_from(1, 1, 0), {}), Posted::done);
  EXPECT_TRUE(pair.poll_until([&] { return pair.seen[1].messages.size() == 2 && pair.seen[0].messages.size() == 1; }));
  EXPECT_TRUE(pair.seen[0].lost.empty());
}

TEST(Messages, WakeTheWaitDescriptor) {
  RailPair pair;
  ASSERT_GE(pair.rails[1]->wait_descriptor(), 0);
  for (std::uint64_t round = 0; round < 50; ++round) {
    bool is_armed = false;
    ASSERT_TRUE(pair.poll_until([&] { return is_armed = pair.rails[1]->arm(); }));
    ASSERT_EQ(pair.send(0, header_from(0, round, 0), {}), Posted::done);
    pollfd waiting{pair.rails[1]->wait_descriptor(), POLLIN, 0};
    ASSERT_TRUE(poll_until([&] { return pair.rails[0]->poll(pair.seen[0]), ::poll(&waiting, 1, 1) == 1; }));
    pair.rails[1]->disarm();
    ASSERT_TRUE(pair.poll_until([&] { return pair.seen[1].messages.size() == round + 1; }));
  }
}

TEST(Connect, NamesBothSides_WhenModesDiffer) {
  Options options = on_loopback();
  options.remote_write = false;
  const auto writing = open_or_fail(on_loopback());
  const auto messaging = open_or_fail(options);
  EXPECT_THAT(writing->connect(1, messaging->address()).message(), HasSubstr("C10D_NEURON_REMOTE_WRITE"));
  EXPECT_FALSE(writing->is_connected(1));
}

TEST(Connect, IsIdempotent) {
  RailPair pair;
  EXPECT_TRUE(pair.rails[0]->connect(1, pair.rails[1]->address()));
  EXPECT_TRUE(pair.rails[0]->is_connected(1));
  EXPECT_FALSE(pair.rails[0]->is_connected(2));
  EXPECT_EQ(pair.rails[0]->send(2, header_from(0, 0, 0), {}), Posted::lost);
}

}  // namespace
}  // namespace neuron::fabric::test
