#include "transport/base/hmac.h"

#include <gtest/gtest.h>

#include <string>

namespace neuron {
namespace {

std::string in_hex(const Mac& mac) {
  std::string out;
  for (const char byte : mac) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += kDigits[static_cast<unsigned char>(byte) >> 4];
    out += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return out;
}

// RFC 4231, test cases 1 and 2.
TEST(Hmac, Hmac_AgreesWithTheStandard_ForItsExamples) {
  EXPECT_EQ(in_hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(in_hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(Hmac, Comparison_TellsDifferentSecretsApart_AlsoByLength) {
  EXPECT_TRUE(equal_in_constant_time("secret", "secret"));
  EXPECT_FALSE(equal_in_constant_time("secret", "secreT"));
  EXPECT_FALSE(equal_in_constant_time("secret", "secret "));
  EXPECT_TRUE(equal_in_constant_time("", ""));
}

}  // namespace
}  // namespace neuron
