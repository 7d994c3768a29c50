// JoinClient: a leader's stream to rank 0, over which the ranks of its host join. A resource that lives until gRPC is
// done with it; `dial`, `say` and `cancel` on Control's thread, where the events are also called. It ends with on_end,
// once, unless it is cancelled or detached, which its owner must do before the Runtime ends.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "c10d_neuron/control/control.grpc.pb.h"
#include "c10d_neuron/control/runtime.h"
#include "transport/base/status.h"

namespace neuron::control {

class JoinClient {
 public:
  enum class End : std::uint8_t {
    unreachable,  // nobody answered, or the connection broke: try again
    stale,        // another join, or one that is over
    refused,      // rank 0 does not accept our token
    over,         // everything was said
  };
  struct Events {
    std::function<void()> on_admitted;
    std::function<void(const proto::ToLeader&)> on_message;  // part, failure, progress
    std::function<void(End, const std::string& why)> on_end;
  };

  static std::shared_ptr<JoinClient> dial(Runtime& runtime, const std::string& address, std::uint16_t port,
                                          std::uint64_t generation, const std::string& token, Events events);
  virtual ~JoinClient() = default;
  virtual void say(proto::FromLeader message) = 0;
  /// No event comes after either of these: `detach` lets the stream end by itself.
  virtual void cancel() = 0;
  virtual void detach() = 0;
};

/// Keeps gRPC's threads from now to the end of the process; call before anything else of gRPC, on Control's thread,
/// whose signal mask they inherit. gRPC 1.51 would end them with its last channel or server and start them again with
/// the next, and that races: "ref_counted.h: assertion failed: prior > 0" once in some hundred cycles of joining and
/// leaving.
void keep_grpc();

/// To rank 0's service, without a proxy.
std::shared_ptr<grpc::Channel> channel_to(const std::string& address, std::uint16_t port);
/// What happened, out of the several layers of gRPC's messages.
std::string innermost(const std::string& message);

}  // namespace neuron::control
