// JoinServer: what rank 0 serves: the join, and late questions about the job's state. A resource of rank 0. `create`
// and all but `stop` on Control's thread; `stop` on any other, since gRPC's threads may need Control's to end. Never
// destroyed while the process could be a fork: who is not its owner leaks it. Errors: unavailable (no port could be
// opened).
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "c10d_neuron/control/control.grpc.pb.h"
#include "c10d_neuron/control/roster.h"
#include "c10d_neuron/control/runtime.h"
#include "transport/base/status.h"

namespace neuron::control {

class ServerCore;
class RendezvousService;

class JoinServer {
 public:
  struct Setup {
    Rank world = 1;
    std::string version;
    std::uint64_t generation = 0;
    std::string token;
    std::vector<std::string> addresses;  // the ones that are published
    bool any_interface = true;           // false: listens on addresses.front() only
  };
  static Result<std::unique_ptr<JoinServer>> create(Runtime& runtime, Setup setup);
  ~JoinServer();

  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Ends the join on every rank that is here, and on those who come later.
  void fail(const Status& status);
  [[nodiscard]] std::vector<Rank> missing() const;
  [[nodiscard]] Status failure() const;
  [[nodiscard]] bool is_complete() const;
  void answer_status_with(std::function<proto::StatusReply()> source);

  void stop();

 private:
  JoinServer() = default;

  std::shared_ptr<ServerCore> core_;
  std::unique_ptr<RendezvousService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::uint16_t port_ = 0;
};

/// What both ends of the join stream prove; said with each other's nonces.
inline constexpr std::string_view kLeaderRole = "joins";
inline constexpr std::string_view kServerRole = "admits";
inline constexpr std::string_view kAskerRole = "asks";

}  // namespace neuron::control
