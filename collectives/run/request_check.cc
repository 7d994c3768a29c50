#include "collectives/run/request_check.h"

#include <string>

#include "collectives/reduce/reducer.h"

namespace neuron {
namespace {

Status wrong(const Request& request, const std::string& what) {
  return {Code::invalid_argument, std::string(name_of(request.collective)) + ": " + what};
}

Status check_side(const Request& request, const Buffers& side, const char* name, std::size_t pieces,
                  std::size_t divisor) {
  if (!side.pieces.empty() && side.pieces.size() != pieces) {
    return wrong(request, std::string(name) + " has " + std::to_string(side.pieces.size()) +
                              " pieces; give one per rank, " + std::to_string(pieces) + ".");
  }
  if (side.pieces.empty() && side.whole.bytes % divisor != 0) {
    return wrong(request, std::string(name) + " has " + std::to_string(side.whole.bytes) + " bytes, which " +
                              std::to_string(divisor) + " ranks cannot share evenly.");
  }
  return {};
}

Status check_rank(const Request& request, Rank rank, Rank world, const char* name, bool may_be_self) {
  const Rank given = request.root;
  if (given < 0 || given >= world) {
    return wrong(request, std::string(name) + " is " + std::to_string(given) +
                              "; it must be a rank of the group, 0 to " + std::to_string(world - 1) + ".");
  }
  if (given == rank && !may_be_self) {
    return wrong(request, std::string(name) + " is this rank itself, " + std::to_string(rank) +
                              "; copy the tensor instead of sending it to yourself.");
  }
  return {};
}

Status check_reduction(const Request& request, std::size_t bytes) {
  if (Status status = supported(request.data_type, request.reduce_op); !status) return status;
  if (bytes % bytes_of(request.data_type) == 0) return {};
  return wrong(request, "the buffer's " + std::to_string(bytes) + " bytes are no whole number of " +
                            std::string(name_of(request.data_type)) + " elements.");
}

Status same_size(const Request& request, std::size_t a, std::size_t b, const char* rule) {
  if (a == b) return {};
  return wrong(request, "input has " + std::to_string(request.input.bytes()) + " bytes and output " +
                            std::to_string(request.output.bytes()) + "; " + rule);
}

}  // namespace

Status check(const Request& request, Rank rank, Rank world) {
  const auto n = static_cast<std::size_t>(world);
  const std::size_t in = request.input.bytes();
  const std::size_t out = request.output.bytes();
  Status status;
  switch (request.collective) {
    case Collective::all_reduce:
      status = check_reduction(request, in);
      return status ? same_size(request, in, out, "they must be equal.") : status;
    case Collective::all_gather:
      status = check_side(request, request.output, "output", n, n);
      return status ? same_size(request, in * n, out, "output must be as large as the inputs of all ranks.") : status;
    case Collective::reduce_scatter:
      if (status = check_reduction(request, out); !status) return status;
      status = check_side(request, request.input, "input", n, n);
      return status ? same_size(request, in, out * n, "input must be as large as the outputs of all ranks.") : status;
    case Collective::broadcast:
      return check_rank(request, rank, world, "root", true);
    case Collective::reduce:
      if (status = check_reduction(request, in); !status) return status;
      if (status = check_rank(request, rank, world, "root", true); !status) return status;
      return rank == request.root ? same_size(request, in, out, "they must be equal.") : status;
    case Collective::gather:
      if (status = check_rank(request, rank, world, "root", true); !status || rank != request.root) return status;
      status = check_side(request, request.output, "output", n, n);
      return status ? same_size(request, in * n, out, "output must be as large as the inputs of all ranks.") : status;
    case Collective::scatter:
      if (status = check_rank(request, rank, world, "root", true); !status || rank != request.root) return status;
      status = check_side(request, request.input, "input", n, n);
      return status ? same_size(request, in, out * n, "input must be as large as the outputs of all ranks.") : status;
    case Collective::all_to_all:
      if (status = check_side(request, request.input, "input", n, n); !status) return status;
      return check_side(request, request.output, "output", n, n);
    case Collective::barrier:
      return {};
    case Collective::send:
      return check_rank(request, rank, world, "destination", false);
    case Collective::receive:
      return check_rank(request, rank, world, "source", false);
  }
  return wrong(request, "unknown collective");
}

}  // namespace neuron
