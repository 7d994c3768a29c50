#include "collectives/run/control_message.h"

#include <gtest/gtest.h>

#include "tests/seed.h"

namespace neuron {
namespace {

TEST(ControlMessage, OfPoisonSurvivesTheWire) {
  const auto message = decode(encode(Poison{7, 3, Code::timeout, "too late"}));
  ASSERT_TRUE(message);
  const auto& poison = std::get<Poison>(*message);
  EXPECT_EQ(poison.group, 7U);
  EXPECT_EQ(poison.epoch, 3U);
  EXPECT_EQ(poison.code, Code::timeout);
  EXPECT_EQ(poison.reason, "too late");
}

TEST(ControlMessage, OfConnectSurvivesTheWire) {
  const auto message = decode(encode(Connect{true, {std::byte{1}, std::byte{2}}, "no fabric"}));
  ASSERT_TRUE(message);
  const auto& connect = std::get<Connect>(*message);
  EXPECT_TRUE(connect.is_reply);
  EXPECT_EQ(connect.address, (std::vector<std::byte>{std::byte{1}, std::byte{2}}));
  EXPECT_EQ(connect.error, "no fabric");
}

TEST(ControlMessage, IsNothing_WhenItIsCutShortOrTooLong) {
  for (const ControlMessage& message : {ControlMessage(Poison{7, 3, Code::timeout, "too late"}),
                                        ControlMessage(Connect{false, std::vector<std::byte>(20), "why"})}) {
    auto bytes = encode(message);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(decode(std::span(bytes).first(length))) << length;
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode(bytes));
  }
}

TEST(ControlMessage, NeverPoisonsWithSuccess) {
  auto bytes = encode(Poison{7, 3, Code::timeout, "why"});
  for (const int code : {0, 200}) {
    bytes[13] = static_cast<std::byte>(code);  // after type, group and epoch
    const auto message = decode(bytes);
    ASSERT_TRUE(message);
    EXPECT_EQ(std::get<Poison>(*message).code, Code::aborted);
  }
}

TEST(ControlMessage, OfGarbageIsHarmless) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  Random random(test_seed());
  for (int i = 0; i < 100'000; ++i) {
    std::vector<std::byte> bytes(random.below(50));
    for (std::byte& one : bytes) one = static_cast<std::byte>(random.below(random.one_in(2) ? 4 : 256));
    const auto message = decode(bytes);
    EXPECT_TRUE(!message || encode(*message).size() == bytes.size());
  }
}

}  // namespace
}  // namespace neuron
