// The containers of the Messenger against simple models, at random.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

#include "tests/seed.h"
#include "transport/messaging/key_table.h"
#include "transport/messaging/recent_keys.h"
#include "transport/messaging/slot_table.h"
#include "transport/messaging/unexpected.h"

namespace neuron {
namespace {

constexpr int kSteps = 100'000;

struct Element {
  MessageKey key;
};

MessageKey key_of(std::uint64_t number) {
  return {
      number % 3,     number % 50, number / 150, static_cast<std::uint32_t>(number % 2), static_cast<Rank>(number % 4),
      number % 5 == 0};
}

TEST(KeyTable, BehavesLikeAMap) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  Random random(test_seed());
  KeyTable<Element> table;
  std::map<std::uint64_t, std::unique_ptr<Element>> model;
  for (int i = 0; i < kSteps; ++i) {
    // Grows and shrinks in waves, so that deletions meet long runs.
    const bool inserts = random.below(100) < (i / 10'000 % 2 == 0 ? 60U : 40U);
    const std::uint64_t number = random.below(6000);
    const auto found = model.find(number);
    ASSERT_EQ(table.find(key_of(number)), found == model.end() ? nullptr : found->second.get());
    if (inserts && found == model.end()) {
      auto& element = model[number] = std::make_unique<Element>(Element{key_of(number)});
      table.insert(*element);
    } else if (!inserts && found != model.end()) {
      table.erase(*found->second);
      model.erase(found);
    }
    ASSERT_EQ(table.size(), model.size());
  }
  std::set<const Element*> visited;
  table.for_each([&](Element& element) { EXPECT_TRUE(visited.insert(&element).second); });
  EXPECT_EQ(visited.size(), model.size());
  EXPECT_EQ(table.select([](const Element& element) { return element.key.group == 1; }).size(),
            static_cast<std::size_t>(std::count_if(model.begin(), model.end(),
                                                   [](const auto& entry) { return entry.second->key.group == 1; })));
}

TEST(KeyTableDeathTest, RefusesTwoElementsOfOneKey) {
  KeyTable<Element> table;
  Element first{key_of(1)};
  Element second{key_of(1)};
  table.insert(first);
  EXPECT_DEATH(table.insert(second), "two messages of one key");
}

TEST(SlotTable, BehavesLikeAMap_AndForgetsOldHandles) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  Random random(test_seed());
  SlotTable<std::uint64_t, 6, 10> table;
  std::map<std::uint32_t, std::uint64_t> model;
  std::vector<std::uint32_t> ended;
  for (int i = 0; i < kSteps; ++i) {
    if (random.one_in(2) && !table.is_full()) {
      const std::uint64_t value = random.next();
      const std::uint32_t handle = table.insert(value);
      ASSERT_NE(handle, 0U);
      ASSERT_TRUE(model.emplace(handle, value).second) << "a handle in use was given again";
    } else if (!model.empty()) {
      const auto chosen = std::next(model.begin(), static_cast<std::ptrdiff_t>(random.below(model.size())));
      ASSERT_EQ(*table.find(chosen->first), chosen->second);
      table.erase(chosen->first);
      ended.push_back(chosen->first);
      model.erase(chosen);
    }
    if (ended.size() > 100) ended.erase(ended.begin());
    for (const std::uint32_t handle : ended) ASSERT_EQ(table.find(handle), nullptr);
    ASSERT_EQ(table.size(), model.size());
    ASSERT_EQ(table.is_full(), model.size() == table.kCapacity);
  }
  EXPECT_EQ(table.find(0), nullptr);
  for (int i = 0; i < 1000; ++i) {
    const auto garbage = static_cast<std::uint32_t>(random.next());
    EXPECT_TRUE(model.contains(garbage) || table.find(garbage) == nullptr);
  }
  std::size_t visited = 0;
  table.for_each([&](std::uint32_t handle, std::uint64_t& value) {
    EXPECT_EQ(model.at(handle), value);
    ++visited;
    table.erase(handle);
  });
  EXPECT_EQ(visited, model.size());
  EXPECT_EQ(table.size(), 0U);
}

TEST(RecentKeys, RemembersTheLastOnes_EachOnce) {
  RecentKeys keys;
  EXPECT_TRUE(keys.is_empty());
  EXPECT_FALSE(keys.take(key_of(1)));
  for (std::uint64_t number = 0; number < 5000; ++number) keys.add(key_of(number));
  for (std::uint64_t number = 5000 - 1024; number < 5000; ++number) {
    EXPECT_TRUE(keys.take(key_of(number))) << number;
    EXPECT_FALSE(keys.take(key_of(number))) << number;
  }
  EXPECT_FALSE(keys.take(key_of(5000 - 1025)));
}

TEST(MessageKey, SurvivesTheHeader) {
  for (std::uint64_t number = 0; number < 1000; ++number) {
    const MessageKey key = key_of(number);
    Header header;
    key.write_to(header);
    EXPECT_EQ(MessageKey::of(header, key.peer), key);
  }
}

TEST(MessageKey, HashesDifferWhereKeysDo) {
  std::set<std::uint64_t> hashes;
  for (std::uint64_t group = 0; group < 4; ++group) {
    for (std::uint64_t sequence = 0; sequence < 20; ++sequence) {
      for (std::uint64_t tag = 0; tag < 20; ++tag) {
        for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
          for (Rank peer = 0; peer < 4; ++peer) {
            for (const bool is_point_to_point : {false, true}) {
              EXPECT_TRUE(
                  hashes.insert(MessageKey{group, sequence, tag, epoch, peer, is_point_to_point}.hash()).second);
            }
          }
        }
      }
    }
  }
}

TEST(UnexpectedStore, CountsItsBytes) {
  UnexpectedStore store;
  Header header;
  header.sequence = 1;
  const std::vector<std::byte> payload(1000, std::byte{4});
  auto& nowhere = *reinterpret_cast<Transport*>(&header);  // only its address is kept
  store.add(nowhere, 2, header, payload);
  EXPECT_GE(store.bytes(), 1000U);
  Unexpected* found = store.find(MessageKey::of(header, 2));
  ASSERT_NE(found, nullptr);
  auto taken = store.take(*found);
  EXPECT_EQ(taken->payload, payload);
  EXPECT_EQ(store.bytes(), 0U);
  EXPECT_EQ(store.size(), 0U);
  store.recycle(std::move(taken));
  store.add(nowhere, 2, header, std::span(payload).first(10));
  EXPECT_EQ(store.find(MessageKey::of(header, 2))->payload.size(), 10U);
}

}  // namespace
}  // namespace neuron
