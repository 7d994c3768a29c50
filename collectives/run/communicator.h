// Communicator: a group of ranks as the caller sees it: issues operations and ends them.
// A resource made by Engine::make_communicator; the engine must outlive it. Any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/run/operation.h"
#include "collectives/run/request.h"
#include "transport/base/status.h"

namespace neuron {

class Engine;
class CommunicatorState;

struct GroupSpec {
  std::uint64_t id = 0;       // from the group's rank 0, the same on all members, unique in the job
  std::string name;           // for people
  std::vector<Rank> members;  // group rank -> global rank; contains this process
  Nanoseconds timeout = 30 * 60 * kSecond;
};

class Communicator {
 public:
  Communicator(Engine& engine, std::shared_ptr<CommunicatorState> state);
  /// Closes the group on this rank only, without waiting for peers; operations in flight end as aborted.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] Rank rank() const;
  [[nodiscard]] Rank world() const;
  [[nodiscard]] const GroupSpec& spec() const;

  /// Checks the request and issues it; never blocks. Errors: invalid_argument, unsupported (nothing was issued),
  /// aborted (the group is closed), or the error that poisoned the group, once.
  Result<OperationRef> issue(Request request);

  /// Ends every operation of the group on every reachable rank with `reason`; the group then goes on in its next epoch.
  void abort(const std::string& reason);
  /// As the destructor does; later calls get an error that says so. Idempotent.
  void close();
  /// ok, or what ended the group's operations last. A dead member stays an error.
  [[nodiscard]] Status error() const;

  /// Collectives issued so far in this epoch.
  [[nodiscard]] std::uint64_t sequence() const;
  void set_sequence(std::uint64_t sequence);
  void set_timeout(Nanoseconds timeout);
  [[nodiscard]] Nanoseconds timeout() const;

 private:
  Engine& engine_;
  std::shared_ptr<CommunicatorState> state_;
};

}  // namespace neuron
