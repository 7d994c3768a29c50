// SlotBook: who gets which outbox, for how long.
#include "transport/shared_memory/slots.h"

#include <gtest/gtest.h>

namespace neuron::shared_memory {
namespace {

class Slots : public ::testing::Test {
 protected:
  SlotBook book_{2, [this](std::uint32_t index) { cleared_.push_back(index); }};
  std::vector<std::uint32_t> cleared_;
};

TEST_F(Slots, GivesTheSameSlotAgain_WhileItIsHeld) {
  const auto first = *book_.lease({1, 10});
  const auto second = *book_.lease({1, 10});
  EXPECT_EQ(first, second);
  EXPECT_EQ(cleared_, (std::vector<std::uint32_t>{0}));
}

TEST_F(Slots, GivesEachPeerItsOwn) {
  const auto first = *book_.lease({1, 10});
  const auto second = *book_.lease({2, 10});
  EXPECT_NE(first->index, second->index);
  EXPECT_NE(first->salt, second->salt);
}

TEST_F(Slots, RefusesAnotherProcessOfARank_UntilTheFirstHasGone) {
  auto first = *book_.lease({1, 10});
  EXPECT_EQ(book_.lease({1, 11}).status().code(), Code::refused);
  first.reset();
  EXPECT_TRUE(book_.lease({1, 11}).is_ok());
}

TEST_F(Slots, AreUsedAgain_ClearedAndWithANewSalt) {
  auto first = *book_.lease({1, 10});
  const std::uint64_t salt = first->salt;
  first.reset();
  const auto second = *book_.lease({1, 10});
  EXPECT_EQ(second->index, 0U);
  EXPECT_NE(second->salt, salt);
  EXPECT_EQ(cleared_, (std::vector<std::uint32_t>{0, 0}));
}

TEST_F(Slots, AreUnavailable_WhenAllAreTaken) {
  const auto first = *book_.lease({1, 10});
  const auto second = *book_.lease({2, 10});
  EXPECT_EQ(book_.lease({3, 10}).status().code(), Code::unavailable);
}

TEST_F(Slots, NeverStampZero) {
  for (int i = 0; i < 1'000; ++i) {
    const auto slot = *book_.lease({1, 10});
    EXPECT_EQ(slot->salt >> 62, 2U) << "room for 2^62 bytes before a stamp could become 0";
  }
}

}  // namespace
}  // namespace neuron::shared_memory
