// Request: one operation as the caller asks for it. A value; the memory it names stays the caller's and must stay valid
// until the operation is done.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/reduce/data_type.h"
#include "collectives/schedule/schedule.h"
#include "transport/base/buffer.h"
#include "transport/base/clock.h"
#include "transport/base/rank.h"

namespace neuron {

/// The memory of one side of an operation: contiguous, or one buffer per chunk (list collectives, uneven sizes). Value.
struct Buffers {
  Buffer whole;                // used when pieces is empty
  std::vector<Buffer> pieces;  // piece i is chunk i; sizes may differ

  static Buffers of(Buffer whole) { return Buffers{whole, {}}; }
  static Buffers of(std::vector<Buffer> pieces) { return Buffers{{}, std::move(pieces)}; }
  [[nodiscard]] std::size_t bytes() const;
};

/// How soon somebody will wait for the operation: decides who wakes the background thread.
enum class Urgency : std::uint8_t {
  background,  // nobody may ever wait (asyncOp): ring at once if the thread sleeps
  caller,      // the caller waits at once and drives the engine itself
  soon,        // send and receive: ring unless a waiter comes within 20 us
  deferred,    // inside a coalescing block: Engine::ring() follows
};

/// Which memory is used, by collective (n = group size), bytes per rank:
///   all_reduce      input and output of equal size; equal addresses mean in place
///   all_gather      input b, output n * b (or n pieces of b)
///   reduce_scatter  input n * b (or n pieces of b), output b
///   broadcast       output b; the root's holds the value
///   reduce          input b; output b at the root
///   gather          input b; output at the root n * b or n pieces
///   scatter         input at the root n * b or n pieces; output b
///   all_to_all      input and output n pieces each; piece sizes agree pairwise
///   barrier         none
///   send            input;  receive: output
struct Request {
  Collective collective = Collective::barrier;
  DataType data_type = DataType::bytes;
  ReduceOp reduce_op = ReduceOp::sum;
  Buffers input;
  Buffers output;
  Rank root = kNoRank;       // group rank; send: destination, receive: source
  std::uint32_t tag = 0;     // send and receive
  Nanoseconds timeout = 0;   // from the call on; 0: the group's
  std::uint64_t layout = 0;  // anything else that must be equal on all ranks (original dtype, memory format), hashed
  Urgency urgency = Urgency::background;
};

}  // namespace neuron
