#include "c10d_neuron/control/job_status.h"

#include <grpcpp/grpcpp.h>

#include "c10d_neuron/control/addresses.h"
#include "c10d_neuron/control/handshake.h"
#include "c10d_neuron/control/join_client.h"
#include "c10d_neuron/control/join_server.h"

namespace neuron::control {

Result<JobStatus> job_status(const std::string& join_key, const std::string& token) {
  proto::JoinKey key;
  if (!key.ParseFromString(join_key) || key.addresses().empty()) {
    return Status(Code::invalid_argument, "This is not the key of a join.");
  }
  const auto port = static_cast<std::uint16_t>(key.port());
  const auto stub = proto::Rendezvous::NewStub(channel_to(key.addresses(0), port));
  proto::StatusRequest request;
  request.set_nonce(make_nonce());
  request.set_mac(proof(token.empty() ? key.token() : token, kAskerRole, key.generation(), request.nonce(), "", 0, 0));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
  proto::StatusReply reply;
  const auto status = stub->Status(&context, request, &reply);
  if (!status.ok()) {
    const bool is_refused = status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
    return Status(is_refused ? Code::refused : Code::unavailable,
                  "Rank 0 (" + key.process() + ") at " + endpoint_text(key.addresses(0), port) +
                      " does not tell its status: " + innermost(status.error_message()) + ".");
  }
  JobStatus job{reply.world(), reply.hosts(), {reply.left().begin(), reply.left().end()}, {}};
  for (int i = 0; i < reply.dead_size() && i < reply.reasons_size(); ++i) {
    job.dead.emplace_back(reply.dead(i), reply.reasons(i));
  }
  return job;
}

}  // namespace neuron::control
