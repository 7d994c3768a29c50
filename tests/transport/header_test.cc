// The wire protocol, pinned: a change of these bytes needs another kProtocolVersion.
#include "transport/header.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

namespace neuron {
namespace {

TEST(Header, HasTheseBytes) {
  Header header;
  header.nonce_check = 0x04030201;
  header.source = 0x08070605;
  header.generation = 0x0C0B0A09;
  header.epoch = 0x100F0E0D;
  header.group = 0x1817161514131211;
  header.sequence = 0x201F1E1D1C1B1A19;
  header.tag = 0x2827262524232221;
  header.length = 0x302F2E2D2C2B2A29;
  header.fingerprint = 0x3837363534333231;
  header.kind = static_cast<MessageKind>(0x39);
  header.flags = 0x3A;
  header.credits = 0x3C3B;
  header.slot = 0x403F3E3D;
  std::array<unsigned char, 64> bytes{};
  std::memcpy(bytes.data(), &header, sizeof header);
  for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], i + 1) << "byte " << i;
}

TEST(Header, KindsHaveTheseNumbers) {
  const char* const names[kMessageKinds] = {"invalid", "hello",  "eager", "announce", "grant",  "data",
                                            "done",    "credit", "want",  "question", "answer", "refuse"};
  for (std::uint8_t kind = 0; kind < kMessageKinds; ++kind)
    EXPECT_EQ(name_of(static_cast<MessageKind>(kind)), names[kind]);
  EXPECT_EQ(name_of(static_cast<MessageKind>(kMessageKinds)), "unknown");
}

TEST(Header, FlagsAndLimitsAreTheProtocols) {
  EXPECT_EQ(kProtocolVersion, 1U);
  EXPECT_EQ(flag::kPointToPoint, 1);
  EXPECT_EQ(flag::kUncredited, 2);
  EXPECT_EQ(flag::kStarved, 4);
  EXPECT_EQ(kMessageBytes, 8192U);
  EXPECT_EQ(kEagerBytes, 8192U - 64U);
  EXPECT_EQ(kBlockBytes, 262'144U);
}

}  // namespace
}  // namespace neuron
