// FlightRecord: what is remembered of an operation, enough to rebuild and verify its schedule later; FlightRing keeps
// the last ones. FlightRecord is a value; FlightRing a resource of the engine, written by the issuing thread and the
// driver, read by any thread.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/reduce/data_type.h"
#include "collectives/run/tuner.h"
#include "collectives/schedule/schedule.h"
#include "transport/base/clock.h"

namespace neuron {

struct FlightRecord {
  enum class State : std::uint8_t { issued, started, done, failed };

  std::uint64_t number = 0;  // counts the process's operations from 1
  std::uint64_t group = 0;
  std::string group_name;
  std::uint32_t epoch = 0;
  std::uint64_t sequence = 0;
  Collective collective = Collective::barrier;
  Algorithm algorithm = Algorithm::direct;
  bool two_step = false;  // direct all_reduce: reduce-scatter, then all-gather
  DataType data_type = DataType::bytes;
  ReduceOp reduce_op = ReduceOp::sum;
  Rank rank = 0;  // in the group
  Rank world = 1;
  Rank root = kNoRank;  // or the peer
  std::uint32_t tag = 0;
  std::uint64_t input_bytes = 0;
  std::uint64_t output_bytes = 0;
  std::uint64_t segment_bytes = 0;
  std::uint64_t topology = 0;  // Topology::digest of the group
  std::uint64_t schedule = 0;  // Schedule::hash; 0 until started
  State state = State::issued;
  Nanoseconds issued_at = 0;
  Nanoseconds started_at = 0;
  Nanoseconds finished_at = 0;
  std::string error;  // empty unless failed
};

class FlightRing {
 public:
  explicit FlightRing(std::size_t capacity) : records_(capacity) {}

  /// Returns the record's number, to be given to the calls below. Those ignore a number that has been overwritten.
  std::uint64_t issued(FlightRecord record);
  void started(std::uint64_t number, const Choice& choice, std::uint64_t topology, Nanoseconds when);
  void finished(std::uint64_t number, Nanoseconds when, const std::string& error);
  /// Oldest first. Schedules are rebuilt here for their hash, so that recording costs next to nothing.
  [[nodiscard]] std::vector<FlightRecord> snapshot() const;

 private:
  FlightRecord* find(std::uint64_t number);

  mutable std::mutex mutex_;
  std::vector<FlightRecord> records_;
  std::uint64_t count_ = 0;
};

}  // namespace neuron
