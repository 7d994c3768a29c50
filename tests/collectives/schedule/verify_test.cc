// Every algorithm is right at every world size, with any root, in place and not.
#include "collectives/schedule/verify.h"

#include <gtest/gtest.h>

#include "tests/collectives/schedule/cases.h"

namespace neuron {
namespace {

/// All sizes up to 64; a sanitizer build takes some of them.
std::vector<Rank> worlds() {
  if (kIsSanitized) return {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 31};
  std::vector<Rank> sizes;
  for (Rank n = 1; n <= 64; ++n) sizes.push_back(n);
  return sizes;
}

class VerifyAlgorithm : public testing::TestWithParam<std::size_t> {
 protected:
  [[nodiscard]] const Case& algorithm() const { return all_cases()[GetParam()]; }
};

TEST_P(VerifyAlgorithm, IsRight_AtEveryWorldSize) {
  for (const Rank world : worlds()) {
    if (world == 1 && algorithm().name == "point_to_point") continue;  // there is no peer
    for (const Rank root : roots_of(algorithm(), world)) {
      const std::vector<Schedule> schedules = build_all(algorithm(), world, root);
      for (const bool in_place : {false, true}) {
        if (in_place && !algorithm().may_be_in_place) continue;
        const VerifyOptions options{.seed = 42, .interleavings = 2, .in_place = in_place};
        const Status status = verify(schedules, options);
        ASSERT_TRUE(status) << "world " << world << ", root " << root << ", in place " << in_place << ": "
                            << status.message() << "\n"
                            << schedules[static_cast<std::size_t>(world / 2)].to_string();
      }
    }
  }
}

TEST_P(VerifyAlgorithm, IsRight_AtManyInterleavings) {
  for (const Rank world : {2, 3, 4, 5, 7, 8}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const VerifyOptions options{
          .seed = seed, .interleavings = kIsSanitized ? 4 : 20, .in_place = algorithm().may_be_in_place};
      const Status status = verify(build_all(algorithm(), world, world - 1), options);
      ASSERT_TRUE(status) << "world " << world << ", seed " << seed << ": " << status.message();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, VerifyAlgorithm, testing::Range(std::size_t{0}, all_cases().size()),
                         [](const auto& test) { return all_cases()[test.param].name; });

TEST(Verify, TakesABuilder_InsteadOfSchedules) {
  EXPECT_TRUE(verify(5, [](Rank rank) { return algorithms::ring_all_reduce(rank, 5); }));
}

}  // namespace
}  // namespace neuron
