// RingWriter and RingReader over plain memory: order, wrapping, a full ring, and what a broken peer may write.
#include "transport/shared_memory/ring.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "tests/transport/shared_memory/node.h"

namespace neuron::shared_memory {
namespace {

using Write = RingWriter::Outcome;
using Read = RingReader::Outcome;

class Ring : public ::testing::Test {
 protected:
  struct alignas(kLineBytes) Memory {
    std::array<std::byte, kRingBytes> ring{};
    Word consumed{0};
  };

  static constexpr std::uint64_t kSalt = (1ULL << 63) + 12345;

  static Header numbered(std::uint64_t sequence) {
    Header header;
    header.kind = MessageKind::eager;
    header.sequence = sequence;
    return header;
  }
  Write write(std::uint64_t sequence, std::size_t bytes) {
    std::vector<std::byte> payload(bytes);
    fill_with(payload, sequence);
    return writer_.write(numbered(sequence), payload);
  }
  // Reads one message and checks that it is whole.
  bool read(std::uint64_t sequence, std::size_t bytes) {
    Header header;
    std::span<const std::byte> payload;
    if (reader_.read(header, payload) != Read::message) return false;
    const bool is_right = header == numbered(sequence) && payload.size() == bytes && is_filled_with(payload, sequence);
    reader_.advance();
    return is_right;
  }
  Read peek() {
    Header header;
    std::span<const std::byte> payload;
    return reader_.read(header, payload);
  }
  // What the writer's process could write over the head of the record at `offset`.
  void forge(std::size_t offset, std::uint64_t stamp, std::uint32_t bytes) {
    std::memcpy(memory_->ring.data() + offset + 8, &bytes, sizeof bytes);
    word_at(memory_->ring.data() + offset).store(stamp);
  }

  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  RingWriter writer_{memory_->ring.data(), kSalt, memory_->consumed};
  RingReader reader_{memory_->ring.data(), kSalt, memory_->consumed};
};

TEST_F(Ring, HasNothing_WhenNew) {
  EXPECT_FALSE(reader_.has_record());
  EXPECT_EQ(peek(), Read::none);
}

TEST_F(Ring, CarriesEverySize_InOrder) {
  std::uint64_t sequence = 0;
  for (std::size_t bytes = 0; bytes <= kEagerBytes; bytes += bytes < 300 ? 1 : 61) {
    ASSERT_EQ(write(++sequence, bytes), Write::done);
    ASSERT_TRUE(reader_.has_record());
    ASSERT_TRUE(read(sequence, bytes)) << bytes;
    ASSERT_EQ(peek(), Read::none);
  }
  ASSERT_EQ(write(++sequence, kEagerBytes), Write::done);
  EXPECT_TRUE(read(sequence, kEagerBytes));
}

TEST_F(Ring, KeepsSmallMessagesInTwoLines) {
  EXPECT_EQ(record_bytes(0), 2 * kLineBytes);
  EXPECT_EQ(record_bytes(48), 2 * kLineBytes);
  EXPECT_EQ(record_bytes(112), 3 * kLineBytes);
}

TEST_F(Ring, SaysFull_WhenNothingIsRead) {
  std::uint64_t written = 0;
  while (write(written + 1, kEagerBytes) == Write::done) ++written;
  EXPECT_GE(written, kMessagesPerRing);
  EXPECT_TRUE(writer_.wants_room());
  EXPECT_FALSE(writer_.has_found_room());
  for (std::uint64_t sequence = 1; sequence <= written; ++sequence) ASSERT_TRUE(read(sequence, kEagerBytes));
  EXPECT_EQ(peek(), Read::none);
  EXPECT_TRUE(writer_.has_found_room());
  EXPECT_FALSE(writer_.has_found_room()) << "said twice, it would keep a sleeper awake";
  EXPECT_EQ(write(99, kEagerBytes), Write::done);
  EXPECT_TRUE(read(99, kEagerBytes));
}

TEST_F(Ring, LosesNothing_OverManyLapsOfRandomSizes) {
  const std::uint64_t seed = random_nonce();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  std::vector<std::size_t> sizes;
  std::uint64_t written = 0;
  std::uint64_t read_so_far = 0;
  while (read_so_far < 20'000) {
    const std::size_t bytes = random.below(random.one_in(3) ? kEagerBytes + 1 : 200);
    if (random.one_in(2) && write(written, bytes) == Write::done) {
      sizes.push_back(bytes);
      ++written;
    }
    if (!random.one_in(3) && read_so_far < written) {
      ASSERT_TRUE(read(read_so_far, sizes[read_so_far])) << "message " << read_so_far;
      ++read_so_far;
    }
  }
}

TEST_F(Ring, IgnoresStampsOfAnotherConnection) {
  RingWriter former(memory_->ring.data(), kSalt + (1ULL << 40), memory_->consumed);
  ASSERT_EQ(former.write(numbered(1), {}), Write::done);
  EXPECT_EQ(peek(), Read::none);
}

TEST_F(Ring, IgnoresPayloadThatLooksLikeTheNextStamp) {
  // A first lap whose payload holds, at every line, the stamp that the second lap will have there.
  std::vector<std::byte> payload(kEagerBytes);
  std::uint64_t position = 0;
  while (position + 2 * kMaxRecordBytes < kRingBytes) {
    for (std::size_t at = 0; at + 8 <= payload.size(); at += 8) {
      const std::uint64_t line = position + (kRecordHeadBytes + sizeof(Header) + at) / kLineBytes * kLineBytes;
      const std::uint64_t stamp = kSalt + kRingBytes + line;
      std::memcpy(payload.data() + at, &stamp, sizeof stamp);
    }
    ASSERT_EQ(writer_.write(numbered(1), payload), Write::done);
    ASSERT_EQ(peek(), Read::message);
    reader_.advance();
    position += kMaxRecordBytes;
  }
  for (std::uint64_t sequence = 0; sequence < 3 * kRingBytes / record_bytes(0); ++sequence) {
    ASSERT_EQ(write(sequence, 0), Write::done);
    ASSERT_TRUE(read(sequence, 0)) << sequence;
    ASSERT_EQ(peek(), Read::none) << sequence;
  }
}

TEST_F(Ring, IsCorrupted_WhenALengthIsTooLarge) {
  forge(0, kSalt, kEagerBytes + 1);
  EXPECT_EQ(peek(), Read::corrupted);
}

TEST_F(Ring, IsCorrupted_WhenARecordPassesTheEnd) {
  std::size_t offset = 0;
  for (; kRingBytes - offset >= kMaxRecordBytes; offset += record_bytes(1000)) {
    ASSERT_EQ(write(1, 1000), Write::done);
    ASSERT_TRUE(read(1, 1000));
  }
  forge(offset, kSalt + offset, kEagerBytes);
  EXPECT_EQ(peek(), Read::corrupted);
}

TEST_F(Ring, IsCorrupted_WhenASkipLeadsNowhere) {
  ASSERT_EQ(write(1, 0), Write::done);
  ASSERT_TRUE(read(1, 0));
  forge(record_bytes(0), kSalt + record_bytes(0), kSkip);
  EXPECT_EQ(peek(), Read::corrupted);
}

TEST_F(Ring, IsCorrupted_WhenAWholeRingIsSkipped) {
  forge(0, kSalt, kSkip);
  EXPECT_EQ(peek(), Read::corrupted);
}

TEST_F(Ring, IsCorrupted_WhenTheReaderClaimsWhatWasNeverWritten) {
  while (write(1, kEagerBytes) == Write::done) {
  }
  memory_->consumed.store(1ULL << 40);
  EXPECT_EQ(write(1, kEagerBytes), Write::corrupted);
}

}  // namespace
}  // namespace neuron::shared_memory
