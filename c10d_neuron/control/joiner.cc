#include "c10d_neuron/control/joiner.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include <boost/asio/ip/v6_only.hpp>

#include "c10d_neuron/control/addresses.h"
#include "c10d_neuron/control/job_status.h"
#include "c10d_neuron/control/token.h"
#include "c10d_neuron/control/wire.h"
#include "transport/base/random.h"

namespace neuron::control {

using std::chrono::milliseconds;

/// How an attempt tells the waiting caller that it has ended. Outlives a caller that has given up.
struct Waiting {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false;
  bool is_settled = false;
  JoinAttempt::End end = JoinAttempt::End::again;
  Status failure;
};

namespace {

constexpr milliseconds kFirstPoll{10};
constexpr milliseconds kLastPoll{200};
constexpr milliseconds kAdmittedPoll{2000};  // of the key, in case another rank 0 takes over
constexpr milliseconds kStorePatience{1000};
constexpr milliseconds kFarewellPatience{1000};
constexpr milliseconds kSettlePatience{3000};  // with links to other hosts; what comes later is reported as a death

/// A failed join's server and thread, kept until this process serves the next one or ends. Leaked on purpose: the
/// thread may run while the process ends.
struct Lingering {
  std::mutex mutex;
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<JoinServer> server;
};
Lingering& lingering() {
  static Lingering* const instance = new Lingering;
  return *instance;
}

void stop(std::unique_ptr<JoinServer> server, std::unique_ptr<Runtime> runtime) {
  if (server) {
    server->stop();
    runtime->run([] {});  // what its streams posted at their end
    server.reset();
  }
  if (runtime) runtime->stop();
}

void linger(std::unique_ptr<JoinServer> server, std::unique_ptr<Runtime> runtime) {
  auto& kept = lingering();
  const std::lock_guard lock(kept.mutex);
  std::swap(kept.server, server);
  std::swap(kept.runtime, runtime);
  stop(std::move(server), std::move(runtime));
}

}  // namespace

Joiner::Joiner(const JoinOptions& options, KeyValueStore& store, Listener& listener)
    : options_(options),
      store_(store),
      listener_(listener),
      deadline_(std::chrono::steady_clock::now() + options.timeout) {
  self_.member = options.self;
  self_.member.rank = options.rank;
  if (self_.member.nonce == 0) self_.member.nonce = random_nonce();
  if (self_.member.pid == 0) self_.member.pid = static_cast<std::uint32_t>(::getpid());
  self_.world = options.world;
  self_.pid_namespace = own_pid_namespace();
}

Joiner::~Joiner() {
  if (!runtime) return;
  runtime->run([this] { close_guarded(*acceptor_); });
  if (server) {
    linger(std::move(server), std::move(runtime));
  } else {
    runtime->stop();
  }
  acceptor_.reset();
}

milliseconds Joiner::remaining() const {
  const auto left = std::chrono::ceil<milliseconds>(deadline_ - std::chrono::steady_clock::now());
  return std::max(left, milliseconds(0));
}

Status Joiner::run() {
  if (Status status = prepare(); !status) return status;
  if (Status status = open_acceptor(); !status) return status;
  if (options_.rank == 0) {
    if (Status status = serve(); !status) return status;
  }
  std::string last_key;
  for (milliseconds pause = kFirstPoll;;) {
    const auto key = read_key();
    if (!key) return key.status().code() == Code::timeout ? timed_out(key.status().message()) : key.status();
    std::string bytes = key->SerializeAsString();
    if (bytes == last_key) {
      std::this_thread::sleep_for(std::min(pause, remaining()));
      pause = std::min(pause * 2, kLastPoll);
    } else {
      pause = kFirstPoll;
      last_key = std::move(bytes);
    }
    Status status = attempt(*key);
    if (status.code() != Code::aborted) return status;
    waited_for_ = status.message();
    if (remaining() == milliseconds(0)) return timed_out(waited_for_);
  }
}

Status Joiner::prepare() {
  if (options_.world < 1) {
    return {Code::invalid_argument, "World size " + std::to_string(options_.world) + " is not at least 1."};
  }
  if (!options_.token_file.empty()) {
    auto read = read_token_file(options_.token_file);
    if (!read) return read.status();
    token = *read;
  }
  auto addresses = own_addresses(options_.network_interface);
  if (!addresses) return addresses.status();
  self_.addresses = std::move(*addresses);
  return {};
}

Status Joiner::open_acceptor() {
  runtime = std::make_unique<Runtime>();
  runtime->run([] { keep_grpc(); });
  acceptor_ = std::make_shared<asio::ip::tcp::acceptor>(runtime->io);
  const bool has_v6 = std::any_of(self_.addresses.begin(), self_.addresses.end(),
                                  [](const std::string& address) { return address.find(':') != std::string::npos; });
  asio::ip::tcp::endpoint endpoint(has_v6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), 0);
  Error error;
  if (!options_.network_interface.empty()) endpoint.address(asio::ip::make_address(self_.addresses.front(), error));
  acceptor_->open(endpoint.protocol(), error);
  if (!error) {
    guard(*acceptor_);
    if (endpoint.address().is_v6()) acceptor_->set_option(asio::ip::v6_only(false), error);
    acceptor_->bind(endpoint, error);
  }
  if (!error) acceptor_->listen(asio::socket_base::max_listen_connections, error);
  if (!error) self_.port = acceptor_->local_endpoint(error).port();
  if (!error) return {};
  return {Code::unavailable, "Cannot listen for links from other hosts at " +
                                 endpoint_text(endpoint.address().to_string(), 0) + ": " + error.message() + "."};
}

Status Joiner::serve() {
  linger(nullptr, nullptr);  // an earlier failure of this process need not be told any more
  if (token.empty()) token = make_token();
  proto::JoinKey key;
  key.set_generation(random_nonce());
  JoinServer::Setup setup{options_.world, options_.self.version, key.generation(),
                          token,          self_.addresses,       options_.network_interface.empty()};
  auto made = runtime->run([&] { return JoinServer::create(*runtime, std::move(setup)); });
  if (!made) return made.status();
  server = std::move(*made);
  for (const auto& address : self_.addresses) key.add_addresses(address);
  key.set_port(server->port());
  if (options_.token_file.empty()) key.set_token(token);
  key.set_host_digest(derive(token, self_.member.host_identity));
  key.set_protocol(kProtocol);
  key.set_process(process_text(self_.member));
  own_key_ = key.SerializeAsString();
  return store_.set(kJoinKey, own_key_);
}

Result<proto::JoinKey> Joiner::read_key() {
  auto value = store_.get(kJoinKey, remaining());
  if (!value && value.status().code() == Code::timeout) {
    return Status(Code::timeout, waited_for_.empty()
                                     ? "rank 0 to say in the store where to join. Check that rank 0 runs "
                                       "and that all ranks use the same store"
                                     : waited_for_);
  }
  if (!value) return value.status();
  if (options_.rank == 0 && *value != own_key_) {
    return Status(Code::mismatch, "Two processes say that they are rank 0: the other one has replaced the join of " +
                                      process_text(self_.member) +
                                      " in the store. Give each process a rank of its own.");
  }
  proto::JoinKey key;
  if (!key.ParseFromString(*value) || key.addresses().empty()) {
    return Status(Code::mismatch, "The store's key " + std::string(kJoinKey) +
                                      " is not one of this version of c10d-neuron. Install the same one on all hosts.");
  }
  return key;
}

Status Joiner::attempt(const proto::JoinKey& key) {
  JoinAttempt::Setup setup{key, options_.token_file.empty() ? key.token() : token, {}, self_};
  const bool is_same_host = key.host_digest() == derive(setup.token, self_.member.host_identity);
  if (is_same_host && options_.network_interface.empty()) setup.addresses.emplace_back("127.0.0.1");
  std::string unresolved;
  for (const auto& address : key.addresses()) {
    auto numeric = resolve(address);
    if (!numeric) unresolved = numeric.status().message();
    if (numeric) setup.addresses.insert(setup.addresses.end(), numeric->begin(), numeric->end());
  }
  if (setup.addresses.empty()) return {Code::aborted, "rank 0 (" + key.process() + "). " + unresolved};
  token = setup.token;
  const auto waiting = std::make_shared<Waiting>();
  auto done = [this, waiting, generation = key.generation()](JoinAttempt::Outcome outcome) {
    if (outcome.end == JoinAttempt::End::joined) {
      shape = shape_of(generation, outcome.seat.participants);
      Mesh::Setup mesh_setup{{options_.rank, generation, token}, outcome.seat.participants, shape.topology, acceptor_};
      mesh = std::make_shared<Mesh>(runtime->io, std::move(mesh_setup), listener_);
      mesh->start(std::move(outcome.seat));
    }
    {
      const std::lock_guard lock(waiting->mutex);
      waiting->end = outcome.end;
      waiting->failure = outcome.failure;
      waiting->is_over = true;
      waiting->changed.notify_all();
    }
    if (!mesh) return;
    mesh->when_settled([waiting] {
      const std::lock_guard lock(waiting->mutex);
      waiting->is_settled = true;
      waiting->changed.notify_all();
    });
  };
  const auto attempt = std::make_shared<JoinAttempt>(*runtime, std::move(setup), std::move(done));
  runtime->run([&] { attempt->start(); });
  Status status = wait(*attempt, waiting, key);
  runtime->run(
      [&] { attempt->abandon("rank " + std::to_string(options_.rank) + ", which led this host, has given up"); });
  return mesh ? Status() : status;  // joined, if only at the last moment
}

Status Joiner::wait(JoinAttempt& attempt, const std::shared_ptr<Waiting>& waiting, const proto::JoinKey& key) {
  milliseconds pause = kFirstPoll;
  std::unique_lock lock(waiting->mutex);
  for (bool is_late = false;;) {
    const milliseconds poll = attempt.is_admitted() || !attempt.leads() ? kAdmittedPoll : pause;
    const milliseconds most = is_late ? kFarewellPatience : std::min(poll, remaining());
    if (waiting->changed.wait_for(lock, most, [&] { return waiting->is_over; })) break;
    if (is_late) break;
    lock.unlock();
    if (remaining() == milliseconds(0)) {
      if (!server) return timed_out(attempt.waiting_for());
      // Told through the server, so that all ranks hear it, this one among them.
      runtime->run([this] { server->fail(timed_out_at_rank_0()); });
      is_late = true;
    } else if (attempt.leads() || server) {
      pause = std::min(pause * 2, kLastPoll);
      if (is_superseded(key)) {
        runtime->run([&] { attempt.abandon("rank 0 has started another join"); });
      }
    }
    lock.lock();
  }
  if (!waiting->is_over) return timed_out(attempt.waiting_for());
  if (waiting->end == JoinAttempt::End::joined) {
    waiting->changed.wait_for(lock, kSettlePatience, [&] { return waiting->is_settled; });
    return {};
  }
  if (waiting->end == JoinAttempt::End::failed) return waiting->failure;
  return {Code::aborted, attempt.waiting_for()};
}

bool Joiner::is_superseded(const proto::JoinKey& key) {
  const auto value = store_.get(kJoinKey, std::min(kStorePatience, std::max(remaining(), milliseconds(1))));
  proto::JoinKey current;
  return value && current.ParseFromString(*value) && current.generation() != key.generation();
}

std::string Joiner::patience_text() const {
  const auto count = options_.timeout.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

Status Joiner::timed_out(const std::string& waiting_for) {
  return {Code::timeout,
          "After " + patience_text() + " " + rank_text(self_.member) + " still waits for " + waiting_for + "."};
}

Status Joiner::timed_out_at_rank_0() {
  const auto missing = server->missing();
  std::string addresses;
  for (const auto& address : self_.addresses) {
    addresses += (addresses.empty() ? "" : ", ") + endpoint_text(address, server->port());
  }
  const auto joined = static_cast<std::size_t>(options_.world) - missing.size();
  return {Code::timeout,
          ranks_text(missing) + (missing.size() == 1 ? " has" : " have") + " not joined after " + patience_text() +
              " (" + std::to_string(joined) + " of " + std::to_string(options_.world) +
              " have). Check that their processes run, that they use the same store, and that they reach "
              "rank 0 at one of " +
              addresses + "."};
}

}  // namespace neuron::control
