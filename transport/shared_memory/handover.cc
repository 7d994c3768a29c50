#include "transport/shared_memory/handover.h"

#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <utility>

#include "transport/base/log.h"
#include "transport/base/random.h"

namespace neuron::shared_memory {
namespace {

/// Hand-overs that others began and have not finished; more wait in the listening socket's queue.
constexpr std::size_t kMaxTalks = 2 * kMaxSlots;
/// Between two tries while a peer's queue or our table of descriptors is full.
constexpr Nanoseconds kRetryAfter = 5 * kMillisecond;

std::string draw_socket_name() {
  char name[64];
  std::snprintf(name, sizeof name, "c10d-neuron-%016" PRIx64 "%016" PRIx64, random_nonce(), random_nonce());
  return name;
}

// Signals of the program are for its own threads: one that is started now has all of them blocked.
std::thread start_without_signals(std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

Status explained(Rank rank, const Status& why) {
  return {why.code(), "shared memory with rank " + std::to_string(rank) + " is not possible: " + why.message()};
}

}  // namespace

Result<Listener> Listener::open() {
  Listener listener;
  listener.name = draw_socket_name();
  auto socket = listen_abstract(listener.name);
  if (!socket.is_ok()) return socket.status();
  listener.socket = std::move(*socket);
  return listener;
}

Result<std::unique_ptr<Handover>> Handover::create(Host host, const Doorbell& doorbell, Nanoseconds timeout,
                                                   std::optional<Listener> listener) {
  if (!listener) {
    auto opened = Listener::open();
    if (!opened.is_ok()) return opened.status();
    listener = std::move(*opened);
  }
  std::unique_ptr<Handover> made(
      new Handover(std::move(host), doorbell, timeout, std::move(listener->name), std::move(listener->socket)));
  made->thread_ = start_without_signals([handover = made.get()] { handover->run(); });
  pthread_setname_np(made->thread_.native_handle(), "neuron-handover");
  return made;
}

Handover::Handover(Host host, const Doorbell& doorbell, Nanoseconds timeout, std::string socket_name,
                   Descriptor listener)
    : host_(std::move(host)),
      doorbell_(doorbell),
      timeout_(timeout),
      socket_name_(std::move(socket_name)),
      listener_(std::move(listener)) {}

Handover::~Handover() {
  stops_.store(true);
  wake_.ring();
  thread_.join();
}

void Handover::connect(const Address& address) {
  {
    const std::lock_guard lock(mutex_);
    auto& standing = standings_.try_emplace(address.owner.rank, Standing::given_up).first->second;
    if (standing != Standing::given_up) return;
    standing = Standing::connecting;
    requests_.push_back({address, clock_.now() + timeout_});
  }
  wake_.ring();
}

void Handover::forget(Rank rank) {
  {
    const std::lock_guard lock(mutex_);
    standings_.erase(rank);
    std::erase_if(arrivals_, [rank](const Arrival& arrival) { return arrival.rank == rank; });
    std::erase_if(requests_, [rank](const Request& request) { return request.address.owner.rank == rank; });
    forgotten_.push_back(rank);
  }
  wake_.ring();
}

std::vector<Arrival> Handover::take_arrivals() {
  const std::lock_guard lock(mutex_);
  has_arrivals_.store(false, std::memory_order_seq_cst);
  return std::exchange(arrivals_, {});
}

void Handover::run() {
  while (!stops_.load()) {
    wait();
    wake_.silence();
    accept_all();
    serve_requests();
    advance_all();
  }
}

void Handover::wait() {
  std::vector<pollfd> watched = {{wake_.descriptor(), POLLIN, 0}};
  if (talks_.size() < kMaxTalks && !is_pausing_) watched.push_back({listener_.number(), POLLIN, 0});
  Nanoseconds next = retries_.empty() && !is_pausing_ ? kNever : clock_.now() + kRetryAfter;
  for (const auto& talk : talks_) {
    watched.push_back({talk.conversation->descriptor(), POLLIN, 0});
    next = std::min(next, talk.deadline);
  }
  int milliseconds = -1;
  if (next != kNever) milliseconds = static_cast<int>(std::max<Nanoseconds>(next - clock_.now(), 0) / kMillisecond) + 1;
  ::poll(watched.data(), watched.size(), milliseconds);
}

// Both lists are taken at once and forgetting comes first: whoever forgets a rank and then connects to its successor
// finds the successor, and whoever comes in the name of a forgotten rank finds its outbox free.
void Handover::serve_requests() {
  std::vector<Rank> forgotten;
  std::vector<Request> requests;
  {
    const std::lock_guard lock(mutex_);
    forgotten.swap(forgotten_);
    requests.swap(requests_);
  }
  for (const Rank rank : forgotten) {
    std::erase_if(retries_, [rank](const Request& request) { return request.address.owner.rank == rank; });
    talks_.remove_if([rank](const Talk& talk) { return talk.conversation->peer().rank == rank; });
  }
  std::move(requests.begin(), requests.end(), std::back_inserter(retries_));
  for (const auto& request : std::exchange(retries_, {})) open(request);
}

void Handover::open(const Request& request) {
  auto socket = connect_abstract(request.address.socket_name);
  if (socket.is_ok()) {
    talks_.push_back({Conversation::connector(host_, request.address.owner, std::move(*socket)), request.deadline});
  } else if (socket.status().code() == Code::unavailable && clock_.now() < request.deadline) {
    retries_.push_back(request);
  } else {
    report({request.address.owner.rank, nullptr, socket.status()});
  }
}

void Handover::accept_all() {
  is_pausing_ = false;
  while (talks_.size() < kMaxTalks) {
    auto socket = accept_connection(listener_);
    if (!socket.is_ok()) {
      // They stay in the queue, so that waiting for them would not wait at all.
      is_pausing_ = true;
      log_once(LogLevel::warning, "no process can be let in to shared memory now: " + socket.status().message());
      return;
    }
    if (!socket->is_valid()) return;
    // A little longer than the connector's own limit: the one who confirms must not be the one who waits longer.
    talks_.push_back({Conversation::listener(host_, std::move(*socket)), clock_.now() + timeout_ + timeout_ / 2});
  }
}

void Handover::advance_all() {
  const Nanoseconds now = clock_.now();
  talks_.remove_if([this, now](Talk& talk) { return is_finished(talk, now); });
}

bool Handover::is_finished(Talk& talk, Nanoseconds now) {
  auto& conversation = *talk.conversation;
  auto outcome = conversation.advance();
  if (outcome == Conversation::Outcome::open && now >= talk.deadline) {
    conversation.refuse({Code::timeout, "the hand-over took longer than " + std::to_string(timeout_ / kMillisecond) +
                                            " ms: is the process stopped?"});
    outcome = Conversation::Outcome::failed;
  }
  if (outcome == Conversation::Outcome::open && !conversation.is_connector() && is_given_up(conversation.peer().rank)) {
    conversation.refuse({Code::refused, "an earlier hand-over with this rank failed"});
    outcome = Conversation::Outcome::failed;
  }
  if (outcome == Conversation::Outcome::open) return false;
  settle(conversation, outcome);
  return true;
}

void Handover::settle(Conversation& conversation, Conversation::Outcome outcome) {
  const Rank rank = conversation.peer().rank;
  if (outcome == Conversation::Outcome::established) {
    report({rank, conversation.take_peer(), Status()});
  } else if (conversation.is_connector()) {
    report({rank, nullptr, conversation.why()});
  } else {
    // Not proved to be who it says: nobody is lost by this.
    log(LogLevel::info, "turned away a process that asked for shared memory: " + conversation.why().message());
  }
}

bool Handover::is_given_up(Rank rank) {
  const std::lock_guard lock(mutex_);
  const auto found = standings_.find(rank);
  return found != standings_.end() && found->second == Standing::given_up;
}

void Handover::report(Arrival arrival) {
  {
    const std::lock_guard lock(mutex_);
    auto found = standings_.find(arrival.rank);
    // The hand-over in the other direction was faster, or the engine has forgotten the rank meanwhile.
    if (found != standings_.end() && found->second == Standing::connected) return;
    if (found == standings_.end()) {
      if (arrival.peer == nullptr) return;
      found = standings_.try_emplace(arrival.rank).first;
    }
    found->second = arrival.peer != nullptr ? Standing::connected : Standing::given_up;
    if (arrival.peer == nullptr) arrival.why = explained(arrival.rank, arrival.why);
    arrivals_.push_back(std::move(arrival));
    has_arrivals_.store(true, std::memory_order_seq_cst);
  }
  doorbell_.ring();
}

}  // namespace neuron::shared_memory
