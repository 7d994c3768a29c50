// What is refused before anything is issued, with a text that names argument, value and remedy.
#include "collectives/run/request_check.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "collectives/reduce/reducer.h"

namespace neuron {
namespace {

constexpr Rank kRank = 1;
constexpr Rank kWorld = 3;

Buffers bytes(std::size_t count) { return Buffers::of(Buffer{nullptr, count, MemoryDomain::host}); }
Buffers pieces(std::size_t count, std::size_t each) {
  return Buffers::of(std::vector<Buffer>(count, Buffer{nullptr, each, MemoryDomain::host}));
}

Request request(Collective collective, Buffers input, Buffers output, Rank root = kNoRank) {
  Request made;
  made.collective = collective;
  made.data_type = DataType::float32;
  made.input = std::move(input);
  made.output = std::move(output);
  made.root = root;
  return made;
}

struct Refusal {
  std::string name;
  Request request;
  std::string message;
};

std::vector<Refusal> refusals() {
  const std::string name[] = {"all_reduce: ", "all_gather: ", "reduce_scatter: ", "broadcast: ", "reduce: ",
                              "gather: ",     "scatter: ",    "all_to_all: ",     "send: ",      "receive: "};
  return {
      {"SizesDiffer", request(Collective::all_reduce, bytes(8), bytes(12)),
       name[0] + "input has 8 bytes and output 12; they must be equal."},
      {"HalfAnElement", request(Collective::all_reduce, bytes(6), bytes(6)),
       name[0] + "the buffer's 6 bytes are no whole number of float32 elements."},
      {"GatherTooSmall", request(Collective::all_gather, bytes(8), bytes(12)),
       name[1] + "input has 8 bytes and output 12; output must be as large as the inputs of all ranks."},
      {"TooFewPieces", request(Collective::all_gather, bytes(8), pieces(2, 8)),
       name[1] + "output has 2 pieces; give one per rank, 3."},
      {"Indivisible", request(Collective::all_gather, bytes(8), bytes(25)),
       name[1] + "output has 25 bytes, which 3 ranks cannot share evenly."},
      {"ScatterTooSmall", request(Collective::reduce_scatter, bytes(12), bytes(8)),
       name[2] + "input has 12 bytes and output 8; input must be as large as the outputs of all ranks."},
      {"NoRoot", request(Collective::broadcast, {}, bytes(8)),
       name[3] + "root is -1; it must be a rank of the group, 0 to 2."},
      {"RootTooLarge", request(Collective::reduce, bytes(8), bytes(8), 3),
       name[4] + "root is 3; it must be a rank of the group, 0 to 2."},
      {"RootsOutput", request(Collective::reduce, bytes(8), bytes(4), kRank),
       name[4] + "input has 8 bytes and output 4; they must be equal."},
      {"GatherAtTheRoot", request(Collective::gather, bytes(8), bytes(12), kRank),
       name[5] + "input has 8 bytes and output 12; output must be as large as the inputs of all ranks."},
      {"ScatterAtTheRoot", request(Collective::scatter, pieces(4, 8), bytes(8), kRank),
       name[6] + "input has 4 pieces; give one per rank, 3."},
      {"UnevenWithoutPieces", request(Collective::all_to_all, bytes(10), bytes(12)),
       name[7] + "input has 10 bytes, which 3 ranks cannot share evenly."},
      {"ToItself", request(Collective::send, bytes(8), {}, kRank),
       name[8] + "destination is this rank itself, 1; copy the tensor instead of sending it to yourself."},
      {"FromNobody", request(Collective::receive, {}, bytes(8), -1),
       name[9] + "source is -1; it must be a rank of the group, 0 to 2."},
  };
}

class Refused : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refused, RequestIsExplained) {
  const Status status = check(GetParam().request, kRank, kWorld);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(All, Refused, ::testing::ValuesIn(refusals()),
                         [](const auto& tested) { return tested.param.name; });

TEST(Accepted, AreRequestsThatMakeSense) {
  for (const Request& made :
       {request(Collective::all_reduce, bytes(0), bytes(0)), request(Collective::all_gather, bytes(8), pieces(3, 8)),
        request(Collective::reduce_scatter, bytes(24), bytes(8)), request(Collective::broadcast, {}, bytes(7), 2),
        request(Collective::reduce, bytes(8), bytes(0), 0), request(Collective::gather, bytes(8), {}, 0),
        request(Collective::scatter, {}, bytes(8), 0), request(Collective::all_to_all, pieces(3, 1), pieces(3, 5)),
        request(Collective::barrier, {}, {}), request(Collective::send, bytes(3), {}, 0),
        request(Collective::receive, {}, bytes(3), 2)}) {
    EXPECT_EQ(check(made, kRank, kWorld), Status()) << name_of(made.collective);
  }
}

TEST(Unsupported, ReductionsAreRefused) {
  Request made = request(Collective::all_reduce, bytes(8), bytes(8));
  made.data_type = DataType::bytes;
  const Status status = check(made, kRank, kWorld);
  EXPECT_EQ(status, supported(DataType::bytes, ReduceOp::sum));
  EXPECT_FALSE(status.is_ok());
}

}  // namespace
}  // namespace neuron
