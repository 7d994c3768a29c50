// Joiner: the blocking part of Control::join: publish or read the store's key, try to join what it names, and try again
// with what it names next, until the job is complete or the time is over. A resource of one call of join, on the
// caller's thread. What it made is taken out by the caller at the end; after a failure rank 0's server lingers (see
// linger), so that late ranks hear the reason too.
#pragma once
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "c10d_neuron/control/join_server.h"
#include "c10d_neuron/control/mesh.h"
#include "c10d_neuron/control/runtime.h"

namespace neuron::control {

class Joiner {
 public:
  Joiner(const JoinOptions& options, KeyValueStore& store, Listener& listener);
  ~Joiner();
  Joiner(const Joiner&) = delete;
  Joiner& operator=(const Joiner&) = delete;

  /// Errors: those of Control::join.
  Status run();

  // After run() succeeded.
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<JoinServer> server;  // rank 0 only
  std::shared_ptr<Mesh> mesh;
  Shape shape;
  std::string token;

 private:
  using Time = std::chrono::steady_clock::time_point;

  Status prepare();
  Status open_acceptor();
  Status serve();
  Result<proto::JoinKey> read_key();
  /// Ok: joined. Code::aborted: try again.
  Status attempt(const proto::JoinKey& key);
  Status wait(JoinAttempt& attempt, const std::shared_ptr<struct Waiting>& waiting, const proto::JoinKey& key);
  bool is_superseded(const proto::JoinKey& key);
  Status timed_out(const std::string& waiting_for);
  Status timed_out_at_rank_0();
  [[nodiscard]] std::chrono::milliseconds remaining() const;
  [[nodiscard]] std::string patience_text() const;

  const JoinOptions& options_;
  KeyValueStore& store_;
  Listener& listener_;
  Time deadline_;
  Participant self_;
  std::string own_key_;  // what rank 0 published
  std::shared_ptr<asio::ip::tcp::acceptor> acceptor_;
  std::string waited_for_;
};

}  // namespace neuron::control
