// Large messages: grants, landing, staging, kept views, and that no block is lost whatever is cancelled and whoever
// dies.
#include <gtest/gtest.h>

#include "tests/transport/messaging/fake_transport.h"

namespace neuron::testing {
namespace {

constexpr std::size_t kLarge = 100'000;

std::uint32_t announced_slot(const FakeTransport::Sent& grant) {
  std::uint32_t slot = 0;
  std::memcpy(&slot, grant.payload.data() + 16, 4);
  return slot;
}

std::vector<std::unique_ptr<TestReceive>> post_receives(Station& station, int count, bool lent = false, Rank peer = 1) {
  std::vector<std::unique_ptr<TestReceive>> receives;
  for (int i = 0; i < count; ++i) {
    receives.push_back(std::make_unique<TestReceive>(static_cast<std::uint64_t>(i), kLarge, lent, peer));
    station.messenger.post_receive(*receives.back());
  }
  return receives;
}

class Granted : public ::testing::TestWithParam<BulkMode> {
 protected:
  Station station_{GetParam(), 12};
};

TEST_P(Granted, MessageArrivesInItsTarget) {
  station_.meet(1);
  auto receives = post_receives(station_, 1);
  station_.announce(1, 0, kLarge, 400);
  const auto grants = station_.wire.take_sent(MessageKind::grant);
  ASSERT_EQ(grants.size(), 1U);
  EXPECT_EQ(announced_slot(grants[0]), 400U);
  std::uint64_t address = 0;
  std::memcpy(&address, grants[0].payload.data(), 8);
  if (GetParam() == BulkMode::write) {
    std::memset(reinterpret_cast<void*>(address), 9, kLarge);  // NOLINT(performance-no-int-to-ptr): same process
  }
  station_.deliver(1, grants[0].header.slot, kLarge);
  ASSERT_EQ(station_.events.received.size(), 1U);
  const std::byte written{GetParam() == BulkMode::write ? std::uint8_t{9} : std::uint8_t{0}};
  EXPECT_EQ(receives[0]->memory, std::vector<std::byte>(kLarge, written));
  EXPECT_EQ(station_.wire.blocks_in_use(), 0U);
}

TEST_P(Granted, TransfersPerPeerAreLimited) {
  station_.meet(1);
  auto receives = post_receives(station_, 10);
  for (std::uint32_t i = 0; i < 10; ++i) station_.announce(1, i, kLarge, 400 + i);
  std::size_t granted = 0;
  while (station_.events.received.size() < 10) {
    const auto grants = station_.wire.take_sent(MessageKind::grant);
    ASSERT_FALSE(grants.empty());
    granted += grants.size();
    ASSERT_LE(granted - station_.events.received.size(), kBlocksInFlightPerPeer);
    for (const auto& grant : grants) station_.deliver(1, grant.header.slot, kLarge);
  }
  EXPECT_EQ(station_.wire.blocks_in_use(), 0U);
}

TEST_P(Granted, LandingTakesAtMostHalfThePool) {
  std::vector<std::vector<std::unique_ptr<TestReceive>>> receives;
  for (Rank peer = 1; peer < 12; ++peer) {
    station_.meet(peer);
    receives.push_back(post_receives(station_, 3, false, peer));
    for (std::uint32_t i = 0; i < 3; ++i) station_.announce(peer, i, kLarge, i);
  }
  EXPECT_EQ(station_.wire.blocks_in_use(), 8U);  // of 16
  std::size_t rounds = 0;
  for (; station_.events.received.size() < 33 && rounds < 100; ++rounds) {
    for (const auto& grant : station_.wire.take_sent(MessageKind::grant))
      station_.deliver(grant.peer, grant.header.slot, kLarge);
    station_.settle();
  }
  EXPECT_EQ(station_.events.received.size(), 33U);
  EXPECT_EQ(station_.wire.most_blocks_in_use(), 8U);
  EXPECT_EQ(station_.wire.blocks_in_use(), 0U);
}

TEST_P(Granted, StagingLeavesHalfThePoolForLanding) {
  station_.meet(1, 100);
  std::vector<std::unique_ptr<TestSend>> sends;
  for (std::uint64_t i = 0; i < 12; ++i) {
    sends.push_back(std::make_unique<TestSend>(i, kLarge));
    station_.messenger.post_send(*sends.back());
  }
  station_.wire.refuses = [] { return true; };  // nothing leaves
  for (const auto& announce : station_.wire.take_sent(MessageKind::announce))
    station_.grant(1, announce.header.slot, 1);
  EXPECT_EQ(station_.wire.blocks_in_use(), 8U);
  station_.wire.refuses = {};
  for (int round = 0; round < 100 && station_.messenger.has_unfinished(); ++round) {
    station_.settle();
    while (!station_.wire.written.empty()) station_.wire.complete_write();
  }
  EXPECT_EQ(station_.events.sent.size(), 12U);
  EXPECT_EQ(station_.wire.blocks_in_use(), 0U);
  EXPECT_FALSE(station_.messenger.has_unfinished());
}

TEST_P(Granted, KeptViewsAreCopied_BeforeTheyHoldUpLanding) {
  station_.meet(1);
  station_.events.keeps = true;
  auto receives = post_receives(station_, 10, true);
  for (std::uint32_t i = 0; i < 10; ++i) station_.announce(1, i, kLarge, i);
  for (int round = 0; round < 20; ++round) {
    for (const auto& grant : station_.wire.take_sent(MessageKind::grant))
      station_.deliver(1, grant.header.slot, kLarge);
  }
  ASSERT_EQ(station_.events.received.size(), 10U) << "kept views block the pair";
  EXPECT_LE(station_.wire.blocks_in_use(), kBlocksInFlightPerPeer / 2);
  EXPECT_GT(station_.messenger.memory_in_use(), 0U);
  for (auto& receive : receives) EXPECT_TRUE(station_.messenger.give_back(*receive));
  EXPECT_EQ(station_.wire.blocks_in_use(), 0U);
  EXPECT_EQ(station_.messenger.memory_in_use(), 0U);
}

TEST_P(Granted, LateArrivalIntoACancelledReceive_IsQuarantined) {
  station_.meet(1);
  auto receives = post_receives(station_, 1);
  station_.announce(1, 0, kLarge, 400);
  const auto grants = station_.wire.take_sent(MessageKind::grant);
  ASSERT_EQ(grants.size(), 1U);
  station_.messenger.cancel(*receives[0]);
  EXPECT_EQ(station_.wire.blocks_in_use(), 1U) << "the peer may still write into it";
  station_.deliver(1, grants[0].header.slot, kLarge);
  EXPECT_EQ(station_.wire.blocks_in_use(), 0U);
  EXPECT_TRUE(station_.events.received.empty());
  station_.deliver(1, grants[0].header.slot, kLarge);  // again: the handle is of the past
}

/// The sender's side gives up while the grant is on its way: the granting side hears that nothing will come.
TEST_P(Granted, NothingComes_AfterTheSenderGaveUp) {
  station_.meet(1, 10);
  TestSend send(0, kLarge);
  station_.messenger.post_send(send);
  const auto announces = station_.wire.take_sent(MessageKind::announce);
  ASSERT_EQ(announces.size(), 1U);
  station_.messenger.cancel(send);
  station_.grant(1, announces[0].header.slot, 3);
  ASSERT_EQ(station_.wire.sent.size(), 2U) << "hello, and the answer to the grant";
  const FakeTransport::Sent answer = station_.wire.sent.back();
  EXPECT_EQ(answer.header.slot, 3U);
  EXPECT_EQ(station_.wire.blocks_in_use(), 0U);
  // The other side's view of it.
  Station other(GetParam());
  other.meet(1);
  for (std::uint32_t i = 0; i < 3 * kBlocksInFlightPerPeer; ++i) {
    TestReceive receive(i, kLarge);
    other.messenger.post_receive(receive);
    other.announce(1, i, kLarge, 400 + i);
    const auto grants = other.wire.take_sent(MessageKind::grant);
    ASSERT_EQ(grants.size(), 1U) << "blocks of transfers that were given up are lost";
    if (i % 2 == 0) other.messenger.cancel(receive);
    Header header = answer.header;
    header.slot = grants[0].header.slot;
    other.arrive(1, header, answer.payload);
    EXPECT_EQ(other.wire.blocks_in_use(), 0U);
    other.messenger.cancel(receive);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Granted, ::testing::Values(BulkMode::write, BulkMode::messages));

// ---- pull ----

TEST(Pull, ReadsInPlaceAndSaysSo) {
  Station station(BulkMode::pull);
  station.meet(1);
  station.wire.lent.assign(kBlockBytes, std::byte{5});
  auto receives = post_receives(station, 1);
  station.announce(1, 0, kLarge, 400);
  ASSERT_EQ(station.events.received.size(), 1U);
  EXPECT_EQ(receives[0]->memory, std::vector<std::byte>(kLarge, std::byte{5}));
  const auto done = station.wire.take_sent(MessageKind::done);
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].header.slot, 400U);
}

TEST(Pull, ChangedBytesAreNotReceived) {
  Station station(BulkMode::pull);
  station.meet(1);
  station.wire.is_lent_current = false;
  auto receives = post_receives(station, 1);
  station.announce(1, 0, kLarge, 400);
  EXPECT_TRUE(station.events.received.empty());
  EXPECT_EQ(station.events.view_lost.size(), 1U);
}

TEST(Pull, UnmappableReferencesAreNotReceived) {
  Station station(BulkMode::pull);
  station.meet(1);
  station.wire.is_lent_mapped = false;
  auto receives = post_receives(station, 1);
  station.announce(1, 0, kLarge, 400);
  EXPECT_TRUE(station.events.received.empty());
  EXPECT_EQ(station.events.view_lost.size(), 1U);
}

TEST(Pull, AnnouncementsWithoutAReferenceEndTheReceive) {
  Station station(BulkMode::pull);
  station.meet(1);
  auto receives = post_receives(station, 1);
  station.arrive(1, Station::message(MessageKind::announce, 0, kLarge), std::vector<std::byte>(3));
  EXPECT_EQ(station.events.received.size() + station.events.view_lost.size() + station.events.mismatched.size(), 1U);
}

TEST(Pull, KeptViewThatChangedIsReported) {
  Station station(BulkMode::pull);
  station.meet(1);
  station.events.keeps = true;
  auto receives = post_receives(station, 1, true);
  station.announce(1, 0, kLarge, 400);
  EXPECT_EQ(station.events.kept[receives[0].get()], station.wire.lent.data()) << "in place";
  EXPECT_EQ(station.wire.sent_count(MessageKind::done), 0U);
  station.wire.is_lent_current = false;
  EXPECT_FALSE(station.messenger.give_back(*receives[0]));
  EXPECT_EQ(station.wire.sent_count(MessageKind::done), 1U);
}

TEST(Pull, StagedBlocksPerPeerAreLimited_UntilTheyAreRead) {
  Station station(BulkMode::pull);
  station.meet(1, 100);
  std::vector<std::unique_ptr<TestSend>> sends;
  for (std::uint64_t i = 0; i < 10; ++i) {
    sends.push_back(std::make_unique<TestSend>(i, kLarge));
    station.messenger.post_send(*sends.back());
  }
  auto announced = station.wire.take_sent(MessageKind::announce);
  EXPECT_EQ(announced.size(), kBlocksInFlightPerPeer);
  for (std::size_t i = 0; i < announced.size(); ++i) {
    Header done;
    done.kind = MessageKind::done;
    done.slot = announced[i].header.slot;
    station.arrive(1, done);
    station.arrive(1, done);  // a second time: nothing
    for (auto& more : station.wire.take_sent(MessageKind::announce)) announced.push_back(std::move(more));
    EXPECT_LE(station.wire.blocks_in_use(), kBlocksInFlightPerPeer);
  }
  EXPECT_EQ(announced.size(), 10U);
  EXPECT_EQ(station.wire.blocks_in_use(), 0U);
}

// ---- cancel and loss in every state ----

enum class Ending : std::uint8_t { cancel, lose };

class End : public ::testing::TestWithParam<std::tuple<BulkMode, Ending>> {
 protected:
  [[nodiscard]] static BulkMode mode() { return std::get<0>(GetParam()); }
  [[nodiscard]] static bool loses() { return std::get<1>(GetParam()) == Ending::lose; }

  /// Rank 1 dies, if that is tested; then the owner takes its post back.
  template <typename Post>
  void end(Station& station, Post& post) {
    if (loses()) {
      station.wire.lose(1);
      station.settle();
      EXPECT_EQ(station.events.lost, std::vector<Rank>{1});
    }
    station.messenger.cancel(post);
  }
  static void expect_clean(Station& station) {
    station.settle();
    while (!station.wire.written.empty()) station.wire.complete_write();
    station.settle();
    EXPECT_EQ(station.wire.blocks_in_use(), 0U);
    EXPECT_FALSE(station.messenger.has_unfinished());
  }
};

class EndOfGranted : public End {};  // messages that wait for a grant
class EndOfPulled : public End {};   // messages that are complete once they are announced

TEST_P(End, OfAQueuedSend) {
  Station station(mode());
  station.meet(1, 0);
  TestSend send(0, kLarge);
  station.messenger.post_send(send);
  end(station, send);
  station.give_credit(1, 10);
  EXPECT_EQ(station.wire.sent_count(MessageKind::announce), 0U);
  expect_clean(station);
}

TEST_P(End, OfASendThatTheTransportHasRefused) {
  Station station(mode());
  station.meet(1, 10);
  station.wire.refusals = 1000;
  TestSend send(0, kLarge);
  station.messenger.post_send(send);
  end(station, send);
  station.wire.refusals = 0;
  expect_clean(station);
}

TEST_P(End, OfASendBeforeTheConnection) {
  Station station(mode());
  TestSend send(0, kLarge);
  station.messenger.post_send(send);
  if (loses()) {
    station.messenger.lose_peer(1, {Code::peer_lost, "never came"});
  }
  station.messenger.cancel(send);
  expect_clean(station);
}

TEST_P(EndOfGranted, OfAnAnnouncedSend) {
  Station station(mode());
  station.meet(1, 10);
  TestSend send(0, kLarge);
  station.messenger.post_send(send);
  const auto announces = station.wire.take_sent(MessageKind::announce);
  ASSERT_EQ(announces.size(), 1U);
  end(station, send);
  station.grant(1, announces[0].header.slot, 1);
  EXPECT_TRUE(station.events.sent.empty());
  EXPECT_TRUE(station.wire.written.empty());
  expect_clean(station);
}

TEST_P(EndOfPulled, OfAStagedMessage) {
  Station station(mode());
  station.meet(1, 10);
  TestSend send(0, kLarge);
  station.messenger.post_send(send);
  const auto announces = station.wire.take_sent(MessageKind::announce);
  ASSERT_EQ(announces.size(), 1U);
  EXPECT_EQ(station.wire.blocks_in_use(), 1U);
  end(station, send);
  EXPECT_EQ(station.wire.blocks_in_use(), loses() ? 0U : 1U) << "it may still be read";
  Header done;
  done.kind = MessageKind::done;
  done.slot = announces[0].header.slot;
  station.arrive(1, done);
  expect_clean(station);
}

TEST_P(EndOfGranted, OfAGrantedSendThatWaitsForABlock) {
  Station station(mode(), 2, 2);  // one block to stage in
  station.meet(1, 10);
  TestSend first(0, kLarge);
  TestSend second(1, kLarge);
  station.messenger.post_send(first);
  station.messenger.post_send(second);
  const auto announces = station.wire.take_sent(MessageKind::announce);
  ASSERT_EQ(announces.size(), 2U);
  station.wire.refuses = [] { return true; };
  for (const auto& announce : announces) station.grant(1, announce.header.slot, 1);
  EXPECT_EQ(station.events.sent.size(), 1U);
  end(station, second);
  station.wire.refuses = {};
  expect_clean(station);
  EXPECT_EQ(station.events.sent.size(), 1U);
}

TEST_P(End, OfAPostedReceive) {
  Station station(mode());
  station.meet(1);
  TestReceive receive(0, kLarge);
  station.messenger.post_receive(receive);
  end(station, receive);
  expect_clean(station);
  if (loses()) return;
  station.events.disposes = [](const Header&) { return Disposition::drop; };
  station.announce(1, 0, kLarge, 400);
  EXPECT_TRUE(station.events.received.empty());
  EXPECT_EQ(station.wire.sent_count(MessageKind::done), mode() == BulkMode::pull ? 1U : 0U)
      << "the sender's block is free again";
  expect_clean(station);
}

TEST_P(EndOfGranted, OfAReceiveThatWaitsForABlock) {
  Station station(mode(), 2, 2);  // one block to land in
  station.meet(1);
  TestReceive first(0, kLarge);
  TestReceive second(1, kLarge);
  station.messenger.post_receive(first);
  station.messenger.post_receive(second);
  station.announce(1, 0, kLarge, 400);
  station.announce(1, 1, kLarge, 401);
  const auto grants = station.wire.take_sent(MessageKind::grant);
  ASSERT_EQ(grants.size(), 1U);
  EXPECT_EQ(second.state, ReceivePost::State::waiting_for_block);
  end(station, second);
  if (loses()) station.messenger.cancel(first);
  if (!loses()) station.deliver(1, grants[0].header.slot, kLarge);
  expect_clean(station);
  EXPECT_EQ(station.wire.sent_count(MessageKind::grant), 0U);
}

TEST_P(EndOfGranted, OfALandingReceive) {
  Station station(mode());
  station.meet(1);
  TestReceive receive(0, kLarge);
  station.messenger.post_receive(receive);
  station.announce(1, 0, kLarge, 400);
  const auto grants = station.wire.take_sent(MessageKind::grant);
  ASSERT_EQ(grants.size(), 1U);
  end(station, receive);
  if (!loses()) station.deliver(1, grants[0].header.slot, kLarge);
  EXPECT_TRUE(station.events.received.empty());
  expect_clean(station);
}

TEST_P(End, OfAKeptReceive) {
  Station station(mode());
  station.meet(1);
  station.events.keeps = true;
  TestReceive receive(0, kLarge, true);
  station.messenger.post_receive(receive);
  station.announce(1, 0, kLarge, 400);
  for (const auto& grant : station.wire.take_sent(MessageKind::grant)) station.deliver(1, grant.header.slot, kLarge);
  ASSERT_EQ(receive.state, ReceivePost::State::kept);
  end(station, receive);
  expect_clean(station);
}

TEST_P(End, OfAnUnmatchedArrival) {
  Station station(mode());
  station.meet(1);
  station.announce(1, 0, kLarge, 400);
  station.eager(1, 1);
  EXPECT_GT(station.messenger.memory_in_use(), 0U);
  if (loses()) {
    station.wire.lose(1);
    station.settle();
  }
  station.messenger.drop_arrivals(5, 0);
  EXPECT_EQ(station.messenger.memory_in_use(), 0U);
  expect_clean(station);
}

TEST_P(End, OfAControlMessageThatWaits) {
  Station station(mode());
  station.meet(1);
  station.wire.refusals = 1000;
  Header question;
  question.kind = MessageKind::question;
  station.messenger.send_control(1, question, {});
  EXPECT_TRUE(station.messenger.has_unfinished());
  if (loses()) {
    station.wire.lose(1);
    station.settle();
  } else {
    station.wire.refusals = 0;
    station.settle();
    EXPECT_EQ(station.wire.sent_count(MessageKind::question), 1U);
  }
  expect_clean(station);
}

INSTANTIATE_TEST_SUITE_P(All, End,
                         ::testing::Combine(::testing::Values(BulkMode::pull, BulkMode::write, BulkMode::messages),
                                            ::testing::Values(Ending::cancel, Ending::lose)));
INSTANTIATE_TEST_SUITE_P(All, EndOfGranted,
                         ::testing::Combine(::testing::Values(BulkMode::write, BulkMode::messages),
                                            ::testing::Values(Ending::cancel, Ending::lose)));
INSTANTIATE_TEST_SUITE_P(All, EndOfPulled,
                         ::testing::Combine(::testing::Values(BulkMode::pull),
                                            ::testing::Values(Ending::cancel, Ending::lose)));

TEST(PeerLost, LeavesTheOthersAlone) {
  Station station(BulkMode::write, 3);
  station.meet(1, 10);
  station.meet(2, 10);
  TestReceive from_dead(0, kLarge, false, 1);
  TestReceive from_living(0, kLarge, false, 2);
  station.messenger.post_receive(from_dead);
  station.messenger.post_receive(from_living);
  station.announce(1, 0, kLarge, 400);
  station.announce(2, 0, kLarge, 401);
  const auto grants = station.wire.take_sent(MessageKind::grant);
  ASSERT_EQ(grants.size(), 2U);
  station.wire.lose(1);
  station.settle();
  EXPECT_TRUE(station.messenger.is_lost(1));
  station.messenger.cancel(from_dead);
  station.deliver(2, grants[1].header.slot, kLarge);
  EXPECT_EQ(station.events.received.size(), 1U);
  TestSend to_living(0, 8, 2);
  station.messenger.post_send(to_living);
  EXPECT_EQ(station.events.sent.size(), 1U);
  EXPECT_EQ(station.wire.blocks_in_use(), 0U);
}

}  // namespace
}  // namespace neuron::testing
