// Garbage from a peer: no crash, no access outside a buffer (the sanitizers watch), and the others are served on.
#include <gtest/gtest.h>

#include "tests/seed.h"
#include "tests/transport/messaging/fake_transport.h"

namespace neuron::testing {
namespace {

constexpr int kMessages = 100'000;

/// Mostly small numbers, so that handles, keys and offsets are hit; sometimes extreme ones.
std::uint64_t interesting(Random& random) {
  switch (random.below(6)) {
    case 0:
      return random.next();
    case 1:
      return UINT64_MAX - random.below(10'000);
    case 2:
      return random.below(64) * kEagerBytes;
    case 3:
      return UINT64_MAX / kEagerBytes * kEagerBytes - random.below(3) * kEagerBytes;
    default:
      return random.below(20);
  }
}

Header random_header(Random& random) {
  Header header;
  header.epoch = static_cast<std::uint32_t>(random.below(3));
  header.group = 5 + random.below(2);
  header.sequence = interesting(random);
  header.tag = random.one_in(2) ? 0 : interesting(random);
  header.length = random.one_in(2) ? 8 : random.one_in(2) ? 100'000 : interesting(random);
  header.fingerprint = random.one_in(4) ? random.next() : 77;
  header.kind = static_cast<MessageKind>(random.below(random.one_in(10) ? 256 : kMessageKinds));
  header.flags = static_cast<std::uint8_t>(random.below(random.one_in(10) ? 256 : 8));
  header.credits = static_cast<std::uint16_t>(random.one_in(100) ? random.next() : random.below(3));
  const auto index = static_cast<std::uint32_t>(random.below(16));
  const auto generation = static_cast<std::uint32_t>(random.below(4));
  header.slot =
      random.one_in(4) ? static_cast<std::uint32_t>(random.next()) : index | generation << (random.one_in(2) ? 12 : 20);
  return header;
}

std::vector<std::byte> random_payload(Random& random) {
  const std::size_t sizes[] = {0, 3, 8, 20, sizeof(SharedBlock), kEagerBytes, random.below(kEagerBytes)};
  std::vector<std::byte> payload(sizes[random.below(7)]);
  for (std::size_t i = 0; i < std::min<std::size_t>(payload.size(), 32); ++i)
    payload[i] = static_cast<std::byte>(random.below(20));
  return payload;
}

class Garbage : public ::testing::TestWithParam<BulkMode> {};

TEST_P(Garbage, DoesNoHarm) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  Random random(test_seed());
  Station station(GetParam(), 3);
  station.meet(1, 10);
  station.meet(2, 1000);
  station.events.disposes = [&](const Header&) { return random.one_in(20) ? Disposition::keep : Disposition::drop; };
  std::vector<std::unique_ptr<TestReceive>> receives;
  std::vector<std::unique_ptr<TestSend>> sends;
  std::uint64_t next = 0;
  for (int i = 0; i < kMessages; ++i) {
    if (i % 50 == 0) {
      for (auto& receive : receives) station.messenger.cancel(*receive);
      for (auto& send : sends) station.messenger.cancel(*send);
      receives.clear();
      sends.clear();
      station.messenger.drop_arrivals(5, UINT32_MAX);
      station.messenger.drop_arrivals(6, UINT32_MAX);
      station.wire.sent.clear();
      station.events.received.clear();
      for (std::uint64_t sequence = 0; sequence < 4; ++sequence) {
        const std::size_t bytes = random.one_in(2) ? 8 : 100'000;
        receives.push_back(std::make_unique<TestReceive>(sequence, bytes, random.one_in(2)));
        station.messenger.post_receive(*receives.back());
        sends.push_back(std::make_unique<TestSend>(sequence, bytes));
        station.messenger.post_send(*sends.back());
      }
      // Rank 2 behaves, and is served.
      TestSend to_other(next, 8, 2);
      TestReceive from_other(next, 8, false, 2);
      station.messenger.post_send(to_other);
      station.messenger.post_receive(from_other);
      station.events.received.clear();
      station.eager(2, next++);
      station.give_credit(2, 1);
      ASSERT_EQ(station.wire.take_sent(MessageKind::eager).back().peer, 2);
      ASSERT_FALSE(station.events.received.empty());
      ASSERT_EQ(station.events.received.back().first, &from_other);
    }
    if (random.one_in(20))
      station.wire.land(
          static_cast<std::uint32_t>(random.one_in(2) ? random.next() : random.below(16) << 8 | 1U << 20));
    station.arrive(1, random_header(random), random_payload(random));
    while (!station.wire.written.empty()) station.wire.complete_write();
  }
  station.settle();
  for (auto& receive : receives) station.messenger.cancel(*receive);
  for (auto& send : sends) station.messenger.cancel(*send);
  station.messenger.lose_peer(1, {Code::peer_lost, "enough"});
  while (!station.wire.written.empty()) station.wire.complete_write();
  station.settle();
  EXPECT_EQ(station.wire.blocks_in_use(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Modes, Garbage, ::testing::Values(BulkMode::pull, BulkMode::write, BulkMode::messages));

}  // namespace
}  // namespace neuron::testing
