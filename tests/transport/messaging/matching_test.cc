// Which message meets which receive, and what becomes of those that meet none.
#include <gtest/gtest.h>

#include "tests/transport/messaging/fake_transport.h"

namespace neuron::testing {
namespace {

TEST(Matching, GivesAReceiveTheMessageThatCameBefore) {
  Station station(BulkMode::write);
  station.meet(1);
  station.eager(1, 3);
  TestReceive receive(3, 8);
  station.messenger.post_receive(receive);
  ASSERT_EQ(station.events.received.size(), 1U);
  EXPECT_EQ(receive.memory, std::vector<std::byte>(8, std::byte{3}));
  EXPECT_EQ(station.messenger.memory_in_use(), 0U);
}

TEST(Matching, ComparesTheWholeKey) {
  Station station(BulkMode::write, 3);
  station.meet(1);
  station.meet(2);
  TestReceive receive(3, 8);
  station.messenger.post_receive(receive);
  std::vector<Header> others(5, Station::message(MessageKind::eager, 3, 8));
  others[0].sequence = 4;
  others[1].group = 6;
  others[2].tag = 1;
  others[3].epoch = 1;
  others[4].flags |= flag::kPointToPoint;
  for (const Header& header : others) station.arrive(1, header, std::vector<std::byte>(8));
  station.eager(2, 3);
  EXPECT_TRUE(station.events.received.empty());
  station.eager(1, 3);
  EXPECT_EQ(station.events.received.size(), 1U);
}

class Wrong : public ::testing::TestWithParam<BulkMode> {};

TEST_P(Wrong, LengthOrFingerprintEndsTheReceive) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{100'000}}) {
    for (const bool is_early : {false, true}) {
      for (const bool has_wrong_length : {false, true}) {
        Station station(GetParam());
        station.meet(1);
        TestReceive receive(3, bytes);
        if (has_wrong_length) receive.message_bytes = bytes + 1;
        if (!has_wrong_length) receive.fingerprint = 78;
        if (is_early) station.messenger.post_receive(receive);
        if (bytes > kEagerBytes) station.announce(1, 3, bytes, 400);
        if (bytes <= kEagerBytes) station.eager(1, 3, bytes);
        if (!is_early) station.messenger.post_receive(receive);
        station.settle();
        EXPECT_EQ(station.events.mismatched, std::vector<ReceivePost*>{&receive});
        EXPECT_TRUE(station.events.received.empty());
        EXPECT_EQ(station.wire.blocks_in_use(), 0U);
        const bool is_pulled = bytes > kEagerBytes && GetParam() == BulkMode::pull;
        EXPECT_EQ(station.wire.sent_count(MessageKind::done), is_pulled ? 1U : 0U);
      }
    }
  }
}

TEST_P(Wrong, PayloadEndsTheReceive) {
  Station station(GetParam());
  station.meet(1);
  TestReceive receive(3, 8);
  station.messenger.post_receive(receive);
  station.arrive(1, Station::message(MessageKind::eager, 3, 8), std::vector<std::byte>(7));
  EXPECT_EQ(station.events.mismatched.size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Modes, Wrong, ::testing::Values(BulkMode::pull, BulkMode::write, BulkMode::messages));

TEST(Nonce, OfAFormerProcessIsDropped) {
  Station station(BulkMode::write);
  station.meet(1);
  TestReceive receive(3, 8);
  station.messenger.post_receive(receive);
  Header header = Station::message(MessageKind::eager, 3, 8);
  header.nonce_check = static_cast<std::uint32_t>(Station::kNonce) + 1;
  station.wire.arrive(1, header, std::vector<std::byte>(8));
  station.settle();
  EXPECT_TRUE(station.events.received.empty());
  station.messenger.cancel(receive);
}

TEST(Unmatched, IsDropped_WhenTheExecutorSaysSo) {
  Station station(BulkMode::write);
  station.meet(1);
  station.wire.sent.clear();
  station.events.disposes = [](const Header&) { return Disposition::drop; };
  for (std::uint64_t i = 0; i < 32; ++i) station.eager(1, i);
  EXPECT_EQ(station.messenger.memory_in_use(), 0U);
  std::uint32_t credits = 0;
  for (const auto& one : station.wire.sent) credits += one.header.credits;
  EXPECT_GE(credits, 24U) << "a dropped message gives its slot back";
  EXPECT_EQ(station.wire.sent_count(MessageKind::refuse), 0U);
}

TEST(Unmatched, IsDroppedByGroupAndEpoch) {
  Station station(BulkMode::write);
  station.meet(1);
  station.eager(1, 0);
  Header newer = Station::message(MessageKind::eager, 0, 8);
  newer.epoch = 1;
  station.arrive(1, newer, std::vector<std::byte>(8));
  station.eager(1, 0, 8, 0, 6);  // another group
  const std::size_t all = station.messenger.memory_in_use();
  station.messenger.drop_arrivals(5, 0);
  EXPECT_EQ(station.messenger.memory_in_use(), all / 3 * 2);
  TestReceive receive(0, 8);
  receive.key.epoch = 1;
  station.messenger.post_receive(receive);
  EXPECT_EQ(station.events.received.size(), 1U);
}

TEST(Late, MessageIsDroppedAndItsSenderTold) {
  for (const bool is_here_already : {false, true}) {
    Station station(BulkMode::write);
    station.meet(1);
    if (is_here_already) station.eager(1, 3);
    station.messenger.refuse_late(Station::key(3));
    if (!is_here_already) station.eager(1, 3);
    const auto refusals = station.wire.take_sent(MessageKind::refuse);
    ASSERT_EQ(refusals.size(), 1U);
    EXPECT_EQ(MessageKey::of(refusals[0].header, 1), Station::key(3));
    EXPECT_EQ(station.messenger.memory_in_use(), 0U);
  }
}

TEST(Control, ReachesTheExecutor) {
  Station station(BulkMode::write);
  station.meet(1);
  Header header;
  for (const MessageKind kind : {MessageKind::question, MessageKind::answer, MessageKind::refuse}) {
    header.kind = kind;
    station.arrive(1, header);
  }
  EXPECT_EQ(station.events.questions.size(), 1U);
  EXPECT_EQ(station.events.answers.size(), 1U);
  EXPECT_EQ(station.events.refused.size(), 1U);
}

TEST(Control, NeedsNoCreditAndOvertakesWhatIsQueued) {
  Station station(BulkMode::write);
  station.meet(1, 0);
  TestSend send(0, 8);
  station.messenger.post_send(send);
  Header question;
  question.kind = MessageKind::question;
  station.messenger.send_control(1, question, {});
  EXPECT_EQ(station.wire.sent_count(MessageKind::question), 1U);
  EXPECT_EQ(station.wire.sent_count(MessageKind::eager), 0U);
  station.messenger.cancel(send);
}

}  // namespace
}  // namespace neuron::testing
