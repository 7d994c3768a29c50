// ServerCore: rank 0's side of the join: streams of leaders, what they said, and what they are told.
// Shared by the server, its streams and what they post; used on Control's thread, except where a method says otherwise.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "c10d_neuron/control/join_server.h"

namespace neuron::control {

class ServerCore;

/// One leader's stream. gRPC calls On...() on its threads, which hand over to Control's; deletes itself at the end.
class JoinStream final : public grpc::ServerBidiReactor<proto::FromLeader, proto::ToLeader> {
 public:
  JoinStream(std::shared_ptr<ServerCore> core, std::string peer);

  // Control's thread.
  void read();
  void write(proto::ToLeader message);
  void close_after_writes(grpc::Status status);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  const std::string peer;  // address, for messages
  std::uint64_t id = 0;
  bool is_authenticated = false;
  std::string nonce;
  std::unique_ptr<boost::asio::steady_timer> patience;

 private:
  void start_next_write();
  void finish_once(const grpc::Status& status);

  std::shared_ptr<ServerCore> core_;
  proto::FromLeader incoming_;
  std::deque<proto::ToLeader> queue_;
  bool closing_ = false;
  grpc::Status closing_status_;
  std::mutex mutex_;  // finished_, and no operation after it
  bool finished_ = false;
};

class ServerCore : public std::enable_shared_from_this<ServerCore> {
 public:
  ServerCore(Runtime& runtime, JoinServer::Setup setup)
      : mailbox(runtime.mailbox),
        io_(runtime.io),
        progress_timer_(runtime.io),
        setup_(std::move(setup)),
        roster_(setup_.world, setup_.version) {}

  void start() { report_progress(); }
  void on_open(JoinStream* stream);
  void on_message(JoinStream* stream, const proto::FromLeader& message);
  void on_end(JoinStream* stream);
  void fail(const Status& status);
  /// Any thread: whether a question comes from somebody who knows the token.
  [[nodiscard]] bool admits(const proto::StatusRequest& request) const;

  [[nodiscard]] const Roster& roster() const { return roster_; }
  [[nodiscard]] bool is_complete() const { return complete_; }
  void stop_timers();

  const std::shared_ptr<Mailbox> mailbox;
  std::function<proto::StatusReply()> status_source;

 private:
  void authenticate(JoinStream* stream, const proto::Proof& proof);
  void tell(JoinStream* stream, const Status& failure);
  void complete();
  void report_progress();

  boost::asio::io_context& io_;
  boost::asio::steady_timer progress_timer_;
  JoinServer::Setup setup_;
  Roster roster_;
  std::map<std::uint64_t, JoinStream*> streams_;
  std::uint64_t next_id_ = 1;
  bool complete_ = false;
  std::string last_progress_;
};

}  // namespace neuron::control
