// Greeting, Address and proofs: bytes there and back, and what is not ours.
#include "transport/shared_memory/greeting.h"

#include <gtest/gtest.h>

#include "transport/base/random.h"

namespace neuron::shared_memory {
namespace {

std::vector<Greeting> one_of_each() {
  Introduction introduction;
  introduction.proof = draw_challenge();
  introduction.arena_id = 5;
  introduction.arena_bytes = 6;
  introduction.slots = 7;
  introduction.slot = 8;
  introduction.salt = 9;
  introduction.has_pidfd = true;
  return {Opening{{1, 2}, {3, 4}, draw_challenge()}, Reply{draw_challenge(), draw_challenge()}, introduction,
          Confirmation{}, Refusal{"because"}};
}

TEST(Greeting, ComesBack_WhenEncoded) {
  for (const auto& greeting : one_of_each()) {
    const auto decoded = decode(encode(greeting));
    ASSERT_TRUE(decoded.is_ok()) << greeting.index();
    EXPECT_TRUE(*decoded == greeting) << greeting.index();
  }
}

TEST(Greeting, IsRefused_WhenCutOrLengthened) {
  for (const auto& greeting : one_of_each()) {
    auto bytes = encode(greeting);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(decode(std::span(bytes).first(length)).is_ok()) << greeting.index() << " cut to " << length;
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode(bytes).is_ok());
  }
}

TEST(Greeting, IsRefused_WhenRandom) {
  const std::uint64_t seed = random_nonce();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (int i = 0; i < 10'000; ++i) {
    std::vector<std::byte> bytes(random.below(256));
    for (auto& byte : bytes) byte = static_cast<std::byte>(random.next());
    EXPECT_FALSE(decode(bytes).is_ok());
  }
}

TEST(Greeting, NamesBothVersions_WhenTheyDiffer) {
  auto bytes = encode(Greeting(Confirmation{}));
  bytes[4] = std::byte{99};
  const auto decoded = decode(bytes);
  ASSERT_FALSE(decoded.is_ok());
  EXPECT_EQ(decoded.status().code(), Code::mismatch);
  EXPECT_NE(decoded.status().message().find("99"), std::string::npos);
}

TEST(Address, ComesBack_WhenEncoded) {
  const auto decoded = decode_address(encode(Address{{3, 4}, "name"}));
  ASSERT_TRUE(decoded.is_ok());
  EXPECT_EQ(decoded->owner, (Identity{3, 4}));
  EXPECT_EQ(decoded->socket_name, "name");
}

TEST(Address, IsInvalid_WhenCutOrTooLong) {
  const auto bytes = encode(Address{{3, 4}, "name"});
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode_address(std::span(bytes).first(length)).is_ok());
  }
  EXPECT_FALSE(decode_address(encode(Address{{3, 4}, std::string(200, 'x')})).is_ok());
  EXPECT_FALSE(decode_address(encode(Address{{3, 4}, ""})).is_ok());
}

TEST(Proof, DependsOnEverythingItSpeaksFor) {
  const Claim claim{"connector", {1, 2}, {3, 4}, draw_challenge(), draw_challenge()};
  const Proof proof = prove("token", claim);
  EXPECT_TRUE(is_same(proof, prove("token", claim)));
  EXPECT_FALSE(is_same(proof, prove("tokem", claim)));
  for (int field = 0; field < 7; ++field) {
    Claim other = claim;
    switch (field) {
      case 0:
        other.role = "listener";
        break;
      case 1:
        ++other.connector.rank;
        break;
      case 2:
        ++other.connector.nonce;
        break;
      case 3:
        ++other.listener.rank;
        break;
      case 4:
        ++other.listener.nonce;
        break;
      case 5:
        other.connector_challenge = draw_challenge();
        break;
      default:
        other.listener_challenge = draw_challenge();
        break;
    }
    EXPECT_FALSE(is_same(proof, prove("token", other))) << "field " << field;
  }
}

}  // namespace
}  // namespace neuron::shared_memory
