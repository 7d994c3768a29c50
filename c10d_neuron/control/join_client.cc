#include "c10d_neuron/control/join_client.h"

#include <deque>
#include <mutex>

#include <grpcpp/grpcpp.h>
#include <boost/asio/steady_timer.hpp>

#include "c10d_neuron/control/addresses.h"
#include "c10d_neuron/control/handshake.h"
#include "c10d_neuron/control/join_server.h"
#include "transport/base/hmac.h"

namespace neuron::control {
namespace {

constexpr auto kDialPatience = std::chrono::seconds(3);

class Stream final : public JoinClient,
                     public grpc::ClientBidiReactor<proto::FromLeader, proto::ToLeader>,
                     public std::enable_shared_from_this<Stream> {
 public:
  Stream(Runtime& runtime, std::shared_ptr<grpc::Channel> channel, std::uint64_t generation, std::string token,
         Events events)
      : mailbox_(runtime.mailbox),
        stub_(proto::Rendezvous::NewStub(std::move(channel))),
        generation_(generation),
        token_(std::move(token)),
        events_(std::move(events)),
        patience_(std::make_unique<boost::asio::steady_timer>(runtime.io)) {}

  void start() {
    alive_ = shared_from_this();
    patience_->expires_after(kDialPatience);
    patience_->async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (error || self->admitted_) return;
      self->late_ = true;
      self->context_.TryCancel();
    });
    stub_->async()->Join(&context_, this);
    AddHold();  // reads and writes are started on Control's thread, between gRPC's calls
    StartRead(&incoming_);
    StartCall();
  }

  void say(proto::FromLeader message) override {
    if (done_) return;
    queue_.push_back(std::move(message));
    if (queue_.size() == 1) StartWrite(&queue_.front());
  }

  void cancel() override {
    detach();
    context_.TryCancel();
  }

  void detach() override {
    events_ = {};
    patience_.reset();
  }

  void OnReadDone(bool ok) override {
    const bool is_posted = mailbox_->post([self = shared_from_this(), ok] {
      if (!ok) return self->release();
      self->on_message();
      self->StartRead(&self->incoming_);
    });
    if (!is_posted) RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    mailbox_->post([self = shared_from_this(), ok] {
      self->queue_.pop_front();
      if (ok && !self->done_ && !self->queue_.empty()) self->StartWrite(&self->queue_.front());
    });
  }

  void OnDone(const grpc::Status& status) override {
    const auto keep = shared_from_this();
    if (!mailbox_->post([self = keep, status] { self->on_done(status); })) alive_.reset();
  }

 private:
  /// The stream has ended: nothing may be started any more.
  void release() {
    done_ = true;
    RemoveHold();
  }

  void on_message() {
    if (incoming_.has_challenge()) return on_challenge(incoming_.challenge());
    if (incoming_.has_proof()) return on_proof(incoming_.proof());
    const auto on_message = events_.on_message;  // which may detach itself
    if (admitted_ && on_message) on_message(incoming_);
  }

  void on_challenge(const proto::Challenge& challenge) {
    if (challenge.generation() != generation_ || challenge.complete()) {
      stale_ = true;
      return context_.TryCancel();
    }
    server_nonce_ = challenge.nonce();
    proto::FromLeader message;
    message.mutable_proof()->set_nonce(nonce_);
    message.mutable_proof()->set_mac(proof(token_, kLeaderRole, generation_, nonce_, server_nonce_, 0, 0));
    say(std::move(message));
  }

  void on_proof(const proto::Proof& given) {
    const auto right = proof(token_, kServerRole, generation_, server_nonce_, nonce_, 0, 0);
    if (server_nonce_.empty() || !equal_in_constant_time(right, given.mac())) return context_.TryCancel();
    admitted_ = true;
    patience_.reset();
    if (const auto on_admitted = events_.on_admitted) on_admitted();
  }

  void on_done(const grpc::Status& status) {
    patience_.reset();
    if (const auto on_end = std::exchange(events_, {}).on_end) {
      if (stale_) {
        on_end(End::stale, "it serves another join, or this one is over");
      } else if (status.error_code() == grpc::StatusCode::PERMISSION_DENIED) {
        on_end(End::refused, status.error_message());
      } else if (late_) {
        on_end(End::unreachable, "no answer within 3 s");
      } else if (status.ok()) {
        on_end(End::over, "");
      } else {
        on_end(End::unreachable, innermost(status.error_message()));
      }
    }
    alive_.reset();
  }

  std::shared_ptr<Mailbox> mailbox_;
  grpc::ClientContext context_;
  std::unique_ptr<proto::Rendezvous::Stub> stub_;
  std::uint64_t generation_;
  std::string token_;
  Events events_;
  std::unique_ptr<boost::asio::steady_timer> patience_;
  std::string nonce_ = make_nonce();
  std::string server_nonce_;
  proto::ToLeader incoming_;
  std::deque<proto::FromLeader> queue_;
  bool admitted_ = false;
  bool stale_ = false;
  bool late_ = false;
  bool done_ = false;
  std::shared_ptr<Stream> alive_;  // until gRPC has said that it is done
};

}  // namespace

void keep_grpc() {
  // A channel without credentials leads nowhere; one callback on it is enough to hold what all callbacks share.
  struct Kept {
    std::shared_ptr<grpc::Channel> channel = grpc::CreateCustomChannel("", nullptr, grpc::ChannelArguments());
    std::unique_ptr<proto::Rendezvous::Stub> stub = proto::Rendezvous::NewStub(channel);
    grpc::ClientContext context;
    proto::StatusRequest request;
    proto::StatusReply reply;
  };
  static const Kept* const kept = [] {
    auto* made = new Kept;  // leaked: that is its purpose
    made->stub->async()->Status(&made->context, &made->request, &made->reply, [](const grpc::Status&) {});
    return made;
  }();
  static_cast<void>(kept);
}

std::shared_ptr<grpc::Channel> channel_to(const std::string& address, std::uint16_t port) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // http_proxy is for the web, not for the job's hosts
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 5000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  const bool is_v6 = address.find(':') != std::string::npos;
  return grpc::CreateCustomChannel((is_v6 ? "ipv6:" : "ipv4:") + endpoint_text(address, port),
                                   grpc::InsecureChannelCredentials(), arguments);
}

/// gRPC wraps the error of the socket in several layers; the innermost says what happened.
std::string innermost(const std::string& message) {
  const auto position = message.rfind(": ");
  return position == std::string::npos ? message : message.substr(position + 2);
}

std::shared_ptr<JoinClient> JoinClient::dial(Runtime& runtime, const std::string& address, std::uint16_t port,
                                             std::uint64_t generation, const std::string& token, Events events) {
  auto stream = std::make_shared<Stream>(runtime, channel_to(address, port), generation, token, std::move(events));
  stream->start();
  return stream;
}

}  // namespace neuron::control
