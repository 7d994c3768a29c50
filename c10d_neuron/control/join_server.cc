#include "c10d_neuron/control/join_server.h"

#include <algorithm>

#include <grpcpp/grpcpp.h>

#include "c10d_neuron/control/addresses.h"
#include "c10d_neuron/control/server_core.h"

namespace neuron::control {
namespace {

constexpr int kLargestRequest = 1 << 20;
constexpr auto kShutdownPatience = std::chrono::milliseconds(200);

std::string listen_address(const JoinServer::Setup& setup) {
  if (!setup.any_interface) return endpoint_text(setup.addresses.front(), 0);
  const bool has_v6 = std::any_of(setup.addresses.begin(), setup.addresses.end(),
                                  [](const std::string& address) { return address.find(':') != std::string::npos; });
  return has_v6 ? "[::]:0" : "0.0.0.0:0";
}

}  // namespace

class RendezvousService final : public proto::Rendezvous::CallbackService {
 public:
  explicit RendezvousService(std::shared_ptr<ServerCore> core) : core_(std::move(core)) {}

  grpc::ServerBidiReactor<proto::FromLeader, proto::ToLeader>* Join(grpc::CallbackServerContext* context) override {
    return new JoinStream(core_, context->peer());  // deletes itself
  }

  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const proto::StatusRequest* request,
                                   proto::StatusReply* reply) override {
    auto* reactor = context->DefaultReactor();
    if (!core_->admits(*request)) {
      reactor->Finish({grpc::StatusCode::PERMISSION_DENIED, "wrong token"});
      return reactor;
    }
    core_->mailbox->post([core = core_, reactor, reply] {
      if (core->status_source) {
        *reply = core->status_source();
        reactor->Finish(grpc::Status::OK);
      } else {
        reactor->Finish({grpc::StatusCode::UNAVAILABLE, "the join is not complete"});
      }
    });
    return reactor;
  }

 private:
  std::shared_ptr<ServerCore> core_;
};

Result<std::unique_ptr<JoinServer>> JoinServer::create(Runtime& runtime, Setup setup) {
  const std::string address = listen_address(setup);
  std::unique_ptr<JoinServer> made(new JoinServer);
  made->core_ = std::make_shared<ServerCore>(runtime, std::move(setup));
  made->service_ = std::make_unique<RendezvousService>(made->core_);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(made->service_.get());
  builder.SetMaxReceiveMessageSize(kLargestRequest);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // A leader whose host vanishes must be noticed while the others wait for the join.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 5000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  made->server_ = builder.BuildAndStart();
  if (!made->server_ || port == 0) {
    return Status(Code::unavailable,
                  "Rank 0 cannot listen on " + address + " for the others to join. Check that the " +
                      "address belongs to this host, or name an interface in C10D_NEURON_INTERFACE.");
  }
  made->port_ = static_cast<std::uint16_t>(port);
  made->core_->start();
  return made;
}

JoinServer::~JoinServer() = default;

void JoinServer::fail(const Status& status) { core_->fail(status); }
std::vector<Rank> JoinServer::missing() const { return core_->roster().missing(); }
Status JoinServer::failure() const { return core_->roster().failure(); }
bool JoinServer::is_complete() const { return core_->is_complete(); }
void JoinServer::answer_status_with(std::function<proto::StatusReply()> source) {
  core_->status_source = std::move(source);
}

void JoinServer::stop() {
  core_->mailbox->post([core = core_] {
    core->stop_timers();
    core->status_source = nullptr;
  });
  server_->Shutdown(std::chrono::system_clock::now() + kShutdownPatience);
  server_->Wait();
}

}  // namespace neuron::control
