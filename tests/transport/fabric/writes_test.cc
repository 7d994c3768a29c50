#include <gmock/gmock.h>

#include <cstring>
#include <map>

#include "rail_pair.h"

namespace neuron::fabric::test {
namespace {

TEST(Blocks, AreAllDistinctMemory_AndEndWithThePool) {
  const auto rail = open_or_fail(on_loopback());
  std::vector<Block> taken;
  while (auto block = rail->take_block()) taken.push_back(*block);
  ASSERT_EQ(taken.size(), rail->traits().blocks);
  for (const Block& block : taken) std::memset(block.address, static_cast<int>(block.index), kBlockBytes);
  for (const Block& block : taken) {
    EXPECT_EQ(block.address[0], static_cast<std::byte>(block.index));
    EXPECT_EQ(block.address[kBlockBytes - 1], static_cast<std::byte>(block.index));
    rail->return_block(block);
  }
  EXPECT_TRUE(rail->take_block());
}

TEST(Writes, LandWholeWithTheirImmediate_AtRandomSizes) {
  constexpr std::size_t kWrites = 800;
  constexpr std::size_t kInFlight = 4;
  const std::uint64_t seed = random_nonce();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  RailPair pair;
  std::vector<Block> from(kInFlight);
  std::vector<Block> to(kInFlight);
  for (auto& block : from) block = *pair.rails[0]->take_block();
  for (auto& block : to) block = *pair.rails[1]->take_block();
  std::vector<std::pair<std::size_t, std::uint64_t>> expected(kInFlight);  // bytes, checksum
  std::vector<bool> is_source_busy(kInFlight);
  std::vector<bool> is_target_busy(kInFlight);
  std::size_t posted = 0;
  std::size_t landed = 0;

  const auto post = [&](std::size_t lane) {
    const std::size_t bytes = random.one_in(8) ? kBlockBytes : 1 + random.below(kBlockBytes);
    for (std::size_t i = 0; i < bytes; i += 8) {
      const std::uint64_t word = random.next();
      std::memcpy(from[lane].address + i, &word, std::min<std::size_t>(8, bytes - i));
    }
    const RemoteBlock remote = pair.rails[1]->expose(to[lane]);
    const auto immediate = static_cast<std::uint32_t>(0xF0000000U + lane);
    if (pair.rails[0]->write(1, from[lane], bytes, remote, immediate, 100 + lane) != Posted::done) return;
    expected[lane] = {bytes, checksum({from[lane].address, bytes})};
    is_source_busy[lane] = is_target_busy[lane] = true;
    ++posted;
  };
  const bool finished = pair.poll_until(
      [&] {
        for (const auto& [cookie, status] : pair.seen[0].done) {
          EXPECT_TRUE(status) << status.message();
          is_source_busy[cookie - 100] = false;
        }
        pair.seen[0].done.clear();
        for (const std::uint32_t immediate : pair.seen[1].written) {
          const std::size_t lane = immediate - 0xF0000000U;
          EXPECT_EQ(checksum({to[lane].address, expected[lane].first}), expected[lane].second);
          is_target_busy[lane] = false;
          ++landed;
        }
        pair.seen[1].written.clear();
        for (std::size_t lane = 0; lane < kInFlight && posted < kWrites; ++lane) {
          if (!is_source_busy[lane] && !is_target_busy[lane]) post(lane);
        }
        return landed == kWrites;
      },
      40 * kSecond);
  EXPECT_TRUE(finished) << landed << " of " << kWrites;
}

TEST(Writes, AndMessagesBothArrive_WhenMixed) {
  RailPair pair;
  const Block from = *pair.rails[0]->take_block();
  const Block to = *pair.rails[1]->take_block();
  const RemoteBlock remote = pair.rails[1]->expose(to);
  std::uint64_t messages = 0;
  std::uint32_t writes = 0;
  bool is_writing = false;
  EXPECT_TRUE(pair.poll_until([&] {
    if (messages < 500 && pair.rails[0]->send(1, header_from(0, messages, 0), {}) == Posted::done) ++messages;
    if (!pair.seen[0].done.empty()) {
      is_writing = false;
      pair.seen[0].done.clear();
    }
    if (!is_writing && writes < 100 && pair.rails[0]->write(1, from, 65'536, remote, writes, writes) == Posted::done) {
      is_writing = true;
      ++writes;
    }
    return pair.seen[1].messages.size() == 500 && pair.seen[1].written.size() == 100;
  }));
  EXPECT_EQ(pair.rails[0]->traffic(1).messages, 500U);
  EXPECT_EQ(pair.rails[0]->traffic(1).bytes, 100U * 65'536U);
}

TEST(Writes, KeepTheirBlock_WhenItIsReturnedTooEarly) {
  RailPair pair;
  ASSERT_EQ(pair.send(0, header_from(0, 0, 0), {}), Posted::done);
  const Block from = *pair.rails[0]->take_block();
  const Block to = *pair.rails[1]->take_block();
  Posted posted = Posted::again;
  ASSERT_TRUE(pair.poll_until([&] {
    return (posted = pair.rails[0]->write(1, from, kBlockBytes, pair.rails[1]->expose(to), 5, 1)) != Posted::again;
  }));
  ASSERT_EQ(posted, Posted::done);
  pair.rails[0]->return_block(from);
  std::vector<std::uint32_t> others;
  while (const auto block = pair.rails[0]->take_block()) others.push_back(block->index);
  EXPECT_THAT(others, ::testing::Not(::testing::Contains(from.index)));
  ASSERT_TRUE(pair.poll_until([&] { return !pair.seen[0].done.empty() && !pair.seen[1].written.empty(); }));
  const auto free_again = pair.rails[0]->take_block();
  ASSERT_TRUE(free_again);
  EXPECT_EQ(free_again->index, from.index);
}

}  // namespace
}  // namespace neuron::fabric::test
