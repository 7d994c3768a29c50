#include "transport/base/decode.h"

#include <gtest/gtest.h>

#include "tests/seed.h"

namespace neuron {
namespace {

TEST(Decoder, ReadsWhatTheEncoderWrote) {
  const std::vector<std::byte> raw(5, std::byte{9});
  const auto bytes = Encoder()
                         .number<std::uint8_t>(1)
                         .number<std::int32_t>(-2)
                         .number<std::uint64_t>(UINT64_MAX)
                         .text("name")
                         .text("")
                         .bytes(raw)
                         .bytes({})
                         .take();
  Decoder decoder(bytes);
  EXPECT_EQ(decoder.number<std::uint8_t>(), 1);
  EXPECT_EQ(decoder.number<std::int32_t>(), -2);
  EXPECT_EQ(decoder.number<std::uint64_t>(), UINT64_MAX);
  EXPECT_EQ(decoder.text(), "name");
  EXPECT_EQ(decoder.text(), "");
  const auto view = decoder.bytes(5);
  EXPECT_TRUE(std::equal(view.begin(), view.end(), raw.begin(), raw.end()));
  EXPECT_TRUE(decoder.is_finished());
}

TEST(Encoder, IsLittleEndian) {
  const auto bytes = Encoder().number<std::uint32_t>(0x04030201).text("a").take();
  const std::vector<std::byte> expected = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},  std::byte{1},
                                           std::byte{0}, std::byte{0}, std::byte{0}, std::byte{'a'}};
  EXPECT_EQ(bytes, expected);
}

TEST(Decoder, GivesZerosForEver_AfterTheFirstShortRead) {
  const auto bytes = Encoder().number<std::uint32_t>(7).number<std::uint8_t>(8).take();
  Decoder decoder(bytes);
  EXPECT_EQ(decoder.number<std::uint32_t>(), 7U);
  EXPECT_TRUE(decoder.is_ok());
  EXPECT_EQ(decoder.number<std::uint16_t>(), 0);
  EXPECT_FALSE(decoder.is_ok());
  EXPECT_EQ(decoder.number<std::uint8_t>(), 0) << "the byte that is left is not read by a later, shorter read";
  EXPECT_FALSE(decoder.is_finished());
}

TEST(Decoder, SaysThatSomethingIsLeft) {
  const auto bytes = Encoder().number<std::uint16_t>(7).take();
  Decoder decoder(bytes);
  decoder.number<std::uint8_t>();
  EXPECT_TRUE(decoder.is_ok());
  EXPECT_FALSE(decoder.is_finished());
}

TEST(Decoder, DoesNotTrustLengths) {
  const auto bytes = Encoder().number<std::uint32_t>(UINT32_MAX).number<std::uint8_t>('x').take();
  Decoder decoder(bytes);
  EXPECT_EQ(decoder.text(), "");
  EXPECT_FALSE(decoder.is_ok());
}

TEST(Decoder, NeverLeavesItsInput) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  Random random(test_seed());
  for (int i = 0; i < 20'000; ++i) {
    // An allocation of its own, so that a sanitizer sees a read past its end.
    std::vector<std::byte> bytes(random.below(40));
    for (std::byte& one : bytes) one = static_cast<std::byte>(random.below(8));
    Decoder decoder(bytes);
    std::size_t read = 0;
    while (decoder.is_ok() && read < 100) {
      switch (random.below(4)) {
        case 0:
          decoder.number<std::uint8_t>();
          break;
        case 1:
          decoder.number<std::uint64_t>();
          break;
        case 2:
          EXPECT_LE(decoder.text().size(), bytes.size());
          break;
        default:
          EXPECT_LE(decoder.bytes(random.below(20)).size(), bytes.size());
      }
      ++read;
    }
  }
}

}  // namespace
}  // namespace neuron
