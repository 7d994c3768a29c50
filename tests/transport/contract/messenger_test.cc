// The contract of every transport, as the Messenger sees it: two of them in one thread, so that each moment can be
// looked at.
#include <gtest/gtest.h>

#include "tests/collectives/run/requests.h"
#include "tests/seed.h"
#include "tests/transport/contract/links.h"
#include "tests/transport/messaging/fake_transport.h"

namespace neuron::testing {
namespace {

struct Side {
  Side(Wiring& wiring, Rank own)
      : rank(own),
        doorbell(std::make_shared<Doorbell>()),
        route(wiring.transport(own, doorbell)),
        messenger(options(), events) {
    events.messenger = &messenger;
  }
  Messenger::Options options() const {
    Messenger::Options made;
    made.rank = rank;
    made.nonces = {Job::nonce(0), Job::nonce(1)};
    made.transports = {route.get()};
    return made;
  }

  const Rank rank;
  std::shared_ptr<Doorbell> doorbell;
  std::unique_ptr<Transport> route;
  FakeEvents events;
  Messenger messenger;
};

class Dialogue : public ::testing::TestWithParam<Link> {
 protected:
  Dialogue() : wiring_(GetParam(), 2), sides_{Side(wiring_, 0), Side(wiring_, 1)}, random_(test_seed()) {
    for (Side& side : sides_) {
      Side& other = sides_[1 - side.rank];
      EXPECT_EQ(side.route->connect(other.rank, other.route->address()), Status());
      side.messenger.use_route(other.rank, *side.route);
    }
    EXPECT_TRUE(
        progress_until([&] { return sides_[0].messenger.is_connected(1) && sides_[1].messenger.is_connected(0); }));
  }

  void progress() {
    for (Side& side : sides_) side.messenger.progress();
  }
  template <typename Condition>
  bool progress_until(Condition&& holds) {
    return eventually([&] {
      progress();
      return holds();
    });
  }
  std::size_t random_size() {
    const std::size_t limits[] = {100, kEagerBytes, kEagerBytes + 100, kBlockBytes};
    return random_.below(limits[random_.below(4)] + 1);
  }
  [[nodiscard]] bool is_quiet() const {
    return std::all_of(std::begin(sides_), std::end(sides_), [](const Side& side) {
      return !side.messenger.has_unfinished() && side.messenger.memory_in_use() == 0;
    });
  }

  Wiring wiring_;
  Side sides_[2];
  Random random_;
};

TEST_P(Dialogue, DeliversWhatWasSent) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  constexpr std::uint64_t kMessages = 400;
  std::vector<std::unique_ptr<TestSend>> sends;
  std::vector<std::unique_ptr<TestReceive>> receives;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    const std::size_t bytes = random_size();
    const bool is_lent = random_.one_in(4);
    const auto from = static_cast<Rank>(i % 2);
    sends.push_back(std::make_unique<TestSend>(i, bytes, 1 - from));
    receives.push_back(std::make_unique<TestReceive>(i, bytes, is_lent, from));
  }
  for (std::uint64_t i = 0; i < kMessages; i += 10) {  // some receives come before their messages, some after
    for (std::uint64_t j = i; j < i + 10; ++j) {
      if (j % 3 != 0) sides_[1 - j % 2].messenger.post_receive(*receives[j]);
      sides_[j % 2].messenger.post_send(*sends[j]);
      if (random_.one_in(2)) progress();
    }
    for (std::uint64_t j = i; j < i + 10; ++j) {
      if (j % 3 == 0) sides_[1 - j % 2].messenger.post_receive(*receives[j]);
    }
  }
  ASSERT_TRUE(
      progress_until([&] { return sides_[0].events.received.size() + sides_[1].events.received.size() == kMessages; }));
  for (const Side& side : sides_) {
    for (const auto& [post, view] : side.events.received) {
      const auto content = static_cast<std::byte>(post->key.sequence);
      ASSERT_EQ(view, std::vector<std::byte>(post->target.bytes, content)) << post->key.sequence;
      ASSERT_TRUE(post->is_lent() || static_cast<TestReceive*>(post)->memory == view) << post->key.sequence;
    }
  }
  EXPECT_TRUE(progress_until([&] { return is_quiet(); }));
}

TEST_P(Dialogue, HoldsNoMoreThanTheWindow_OfWhatNobodyReceives) {
  constexpr std::uint64_t kMessages = 2000;
  std::vector<std::unique_ptr<TestSend>> sends;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    sends.push_back(std::make_unique<TestSend>(i, 4096));
    sides_[0].messenger.post_send(*sends.back());
    progress();
    ASSERT_LE(sides_[1].messenger.memory_in_use(), Messenger::kMaxWindow * kMessageBytes);
  }
  const std::size_t held = sides_[1].messenger.memory_in_use();
  EXPECT_GT(held, 0U);
  // Another group's message passes.
  TestSend large(0, 200'000, 1, 9);
  TestReceive wanted(0, 200'000, false, 0, 9);
  sides_[0].messenger.post_send(large);
  sides_[1].messenger.post_receive(wanted);
  ASSERT_TRUE(progress_until([&] { return !sides_[1].events.received.empty(); }));
  EXPECT_EQ(sides_[1].events.received[0].first, &wanted);
  // And everything arrives once it is received.
  std::vector<std::unique_ptr<TestReceive>> receives;
  for (std::uint64_t i = kMessages; i-- > 0;) {  // the last one first
    receives.push_back(std::make_unique<TestReceive>(i, 4096, false, 0));
    sides_[1].messenger.post_receive(*receives.back());
    progress();
  }
  ASSERT_TRUE(progress_until([&] { return sides_[1].events.received.size() == kMessages + 1; }));
  for (const auto& receive : receives) {
    ASSERT_EQ(receive->memory, std::vector<std::byte>(4096, static_cast<std::byte>(receive->key.sequence)));
  }
  EXPECT_TRUE(progress_until([&] { return is_quiet(); }));
}

TEST_P(Dialogue, GoesOn_AfterManyCancels) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  std::vector<std::unique_ptr<TestSend>> sends;
  std::vector<std::unique_ptr<TestReceive>> receives;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const std::size_t bytes = random_size();
    sends.push_back(std::make_unique<TestSend>(i, bytes));
    receives.push_back(std::make_unique<TestReceive>(i, bytes, false, 0));
    sides_[0].messenger.post_send(*sends.back());
    sides_[1].messenger.post_receive(*receives.back());
    for (std::uint64_t steps = random_.below(6); steps > 0; --steps) progress();
    if (random_.one_in(2)) sides_[0].messenger.cancel(*sends.back());
    if (random_.one_in(2)) sides_[1].messenger.cancel(*receives.back());
  }
  for (const auto& send : sends) sides_[0].messenger.cancel(*send);
  for (const auto& receive : receives) sides_[1].messenger.cancel(*receive);
  for (const auto& [post, view] : sides_[1].events.received) {
    ASSERT_EQ(view, std::vector<std::byte>(post->target.bytes, static_cast<std::byte>(post->key.sequence)));
  }
  sides_[1].events.received.clear();
  sides_[1].messenger.drop_arrivals(5, 0);
  for (std::uint64_t i = 0; i < 20; ++i) {  // more than there could be blocks left if each cancel lost one
    TestSend send(1000 + i, kBlockBytes);
    TestReceive receive(1000 + i, kBlockBytes, false, 0);
    sides_[0].messenger.post_send(send);
    sides_[1].messenger.post_receive(receive);
    ASSERT_TRUE(progress_until([&] { return sides_[1].events.received.size() == i + 1; }));
    ASSERT_TRUE(progress_until([&] { return send.state == SendPost::State::idle; }));
  }
  sides_[1].messenger.drop_arrivals(5, 0);
  EXPECT_TRUE(progress_until([&] { return is_quiet(); }));
}

INSTANTIATE_TEST_SUITE_P(All, Dialogue, all_links(), [](const auto& tested) { return name_of(tested.param); });

}  // namespace
}  // namespace neuron::testing
