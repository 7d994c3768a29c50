#include "transport/fabric/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/base/random.h"

namespace neuron::fabric {
namespace {

using ::testing::HasSubstr;

Address sample() {
  Address address;
  address.nonce = 0x1122334455667788;
  address.provider = "net";
  address.fabric = "192.0.2.0/24";
  address.protocol = 7;
  address.library_version = 1 << 16 | 17;
  address.remote_write = true;
  address.host = "192.0.2.2";
  address.raw = std::vector<std::byte>(16, std::byte{0xAB});
  return address;
}

TEST(Address, SurvivesTheRoad) {
  const auto decoded = decode_address(encode(sample()));
  ASSERT_TRUE(decoded) << decoded.status().message();
  EXPECT_EQ(*decoded, sample());
}

TEST(Address, IsRefused_WhenCutAnywhereOrLonger) {
  auto bytes = encode(sample());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode_address(std::span(bytes).first(length))) << length;
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode_address(bytes));
}

TEST(Address, IsReadWithoutHarm_WhenBytesAreFlipped) {
  const std::uint64_t seed = random_nonce();
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int round = 0; round < 10'000; ++round) {
    auto bytes = encode(sample());
    bytes[random.below(bytes.size())] ^= static_cast<std::byte>(1 + random.below(255));
    if (const auto decoded = decode_address(bytes)) {
      EXPECT_LE(decoded->raw.size(), 256U);
    }
  }
}

TEST(Compatible, NamesBothProviders_WhenTheyDiffer) {
  Address peer = sample();
  peer.provider = "sockets";
  const Status status = compatible(sample(), peer);
  EXPECT_EQ(status.code(), Code::mismatch);
  EXPECT_THAT(status.message(), HasSubstr("provider net"));
  EXPECT_THAT(status.message(), HasSubstr("provider sockets"));
  EXPECT_THAT(status.message(), HasSubstr("C10D_NEURON_PROVIDER"));
}

TEST(Compatible, AcceptsAnotherSubnet_ButNotAnotherEfaFabric) {
  Address peer = sample();
  peer.fabric = "198.51.100.0/24";
  EXPECT_TRUE(compatible(sample(), peer));
  Address own = sample();
  own.provider = peer.provider = "efa";
  own.fabric = "efa";
  peer.fabric = "efa-direct";
  EXPECT_EQ(compatible(own, peer).code(), Code::mismatch);
}

TEST(Compatible, NamesBothAddresses_WhenOneIsLoopback) {
  Address peer = sample();
  peer.host = "127.0.0.1";
  const Status status = compatible(sample(), peer);
  EXPECT_EQ(status.code(), Code::mismatch);
  EXPECT_THAT(status.message(), HasSubstr("192.0.2.2"));
  EXPECT_THAT(status.message(), HasSubstr("127.0.0.1"));
  EXPECT_THAT(status.message(), HasSubstr("C10D_NEURON_INTERFACE"));
  peer.host = "fd00::2";
  EXPECT_FALSE(compatible(sample(), peer));
}

TEST(Compatible, NamesTheKnob_WhenOnlyOneSideWrites) {
  Address peer = sample();
  peer.remote_write = false;
  EXPECT_THAT(compatible(sample(), peer).message(), HasSubstr("C10D_NEURON_REMOTE_WRITE"));
}

}  // namespace
}  // namespace neuron::fabric
