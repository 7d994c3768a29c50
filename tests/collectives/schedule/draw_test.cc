// Figures show every message once, in the round in which it leaves.
#include "collectives/schedule/draw.h"

#include <gtest/gtest.h>

#include "tests/collectives/schedule/cases.h"

namespace neuron {
namespace {

using namespace algorithms;

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++found;
  return found;
}

TEST(DrawText, ShowsTheRoundsOfAReduction) {
  const Result<std::string> text = draw_text({ring_reduce_scatter(0, 2), ring_reduce_scatter(1, 2)});
  ASSERT_TRUE(text) << text.status().message();
  EXPECT_EQ(*text,
            "ring reduce_scatter, 2 ranks\n"
            "round 1: 0 --input[1]--> 1 (reduce into output[0])\n"
            "round 1: 1 --input[0]--> 0 (reduce into output[0])\n");
}

TEST(DrawText, ShowsCopiesAndSignals) {
  const Result<std::string> gather = draw_text({direct_gather(0, 2, 0), direct_gather(1, 2, 0)});
  ASSERT_TRUE(gather) << gather.status().message();
  EXPECT_EQ(*gather,
            "direct gather, 2 ranks\n"
            "round 1: 0 copies input[0] into output[0]\n"
            "round 1: 1 --input[0]--> 0 (into output[1])\n");
  const Result<std::string> barrier = draw_text({dissemination_barrier(0, 2), dissemination_barrier(1, 2)});
  ASSERT_TRUE(barrier) << barrier.status().message();
  EXPECT_NE(barrier->find("round 1: 0 --signal--> 1\n"), std::string::npos) << *barrier;
}

TEST(DrawSvg, HasOneArrowForEachMessage) {
  for (const Case& algorithm : all_cases()) {
    const std::vector<Schedule> schedules = build_all(algorithm, 5, 1);
    const Result<std::string> text = draw_text(schedules);
    const Result<std::string> svg = draw_svg(schedules);
    ASSERT_TRUE(text) << algorithm.name << text.status().message();
    ASSERT_TRUE(svg) << algorithm.name << svg.status().message();
    EXPECT_EQ(count(*svg, "marker-end"), count(*text, "--> ")) << algorithm.name;
    EXPECT_GE(count(*svg, "marker-end"), 1U) << algorithm.name;
    EXPECT_EQ(count(*svg, ">rank "), 5U) << algorithm.name;
    EXPECT_EQ(count(*svg, "<svg"), 1U);
    EXPECT_TRUE(svg->ends_with("</svg>\n"));
  }
}

TEST(DrawSvg, PassesTheErrorOn_WhenSchedulesAreWrong) {
  EXPECT_FALSE(draw_svg({direct_gather(0, 2, 0), direct_gather(1, 2, 1)}));
  EXPECT_FALSE(draw_text({}));
}

}  // namespace
}  // namespace neuron
