// Messenger: carries messages of at most kBlockBytes between ranks over whichever Transport connects them. Matching,
// credit and the large-message protocol live here, once for all transports.
//
// Ownership: the Engine. Thread: the holder of the baton. Hot path: no lock, no system call; memory is allocated only
// when a pool grows. Failure: a peer that is lost is reported once; a message that does not fit its receive ends that
// receive.
//
// Flow control. The receiver grants credit in landing slots of kMessageBytes. A message takes one; the slot is given
// back when the message has met its receive, so unmatched messages of a pair never hold more than the window (initially
// half the receive queue over all peers, at most kMaxWindow). A sender without credit queues. A receive that is posted
// while its peer may be out of credit sends a `want`, and the wanted message comes without credit: it lands in a posted
// receive. So no operation waits for credit that only another operation can return. Control messages need no credit.
//
// Large messages. Payload goes through blocks that the transports own, never through the user's memory: staged and read
// in place (pull), or granted by the receiver when matched and then written (write, messages). At most
// kBlocksInFlightPerPeer blocks are in flight for a pair, plus the wanted ones.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "transport/messaging/key_table.h"
#include "transport/messaging/peer.h"
#include "transport/messaging/posts.h"
#include "transport/messaging/recent_keys.h"
#include "transport/messaging/slot_table.h"
#include "transport/messaging/unexpected.h"
#include "transport/transport.h"

namespace neuron {

/// What becomes of an arrival that no receive waits for.
enum class Disposition : std::uint8_t { keep, drop };

/// What the Messenger tells the executor. Called on the driver's thread, from within the Messenger's own calls.
class MessengerEvents {
 public:
  virtual ~MessengerEvents() = default;
  /// The source may be used again; the message is on its way.
  virtual void on_sent(SendPost& post) = 0;
  /// `view`: the payload, valid during the call. Lent receives may Messenger::keep() it. Not lent: already in the
  /// target.
  virtual void on_received(ReceivePost& post, std::span<const std::byte> view) = 0;
  /// The message for this receive has another length or fingerprint; the receive has ended.
  virtual void on_mismatch(ReceivePost& post, const Header& header) = 0;
  /// The lent bytes changed while they were read: the sender has given them up. The receive's result is not to be used.
  virtual void on_view_lost(ReceivePost& post) = 0;
  /// The sender has given the message up after it was announced; the receive has ended.
  virtual void on_withdrawn(ReceivePost& post) = 0;
  /// Nobody waits for this message (yet).
  virtual Disposition on_unmatched(Rank source, const Header& header) = 0;
  virtual void on_question(Rank source, const Header& header, std::span<const std::byte> payload) = 0;
  virtual void on_answer(Rank source, const Header& header, std::span<const std::byte> payload) = 0;
  /// A message of ours came too late: its receive has ended there.
  virtual void on_refused(Rank source, const Header& header, std::span<const std::byte> payload) = 0;
  /// Something waits for this peer and there is no connection: asked once per connection attempt.
  virtual void on_connection_needed(Rank peer) = 0;
  virtual void on_peer_lost(Rank peer, Transport& route, const Status& why) = 0;
};

class Messenger {
 public:
  static constexpr std::uint32_t kMaxWindow = 512;  // slots: 4 MiB

  struct Options {
    Rank rank = 0;
    std::uint32_t generation = 0;
    std::vector<std::uint64_t> nonces;  // index = global rank
    std::vector<Transport*> transports;
  };
  Messenger(Options options, MessengerEvents& events);
  ~Messenger();
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  // ---- connections ----
  /// One more transport, beside those given at construction.
  void add_transport(Transport& transport);
  /// `route` has connected `rank`, or will: messages to it go that way from now on.
  void use_route(Rank rank, Transport& route);
  /// Ends everything with that peer: posts stay with their owner, who cancels them.
  void lose_peer(Rank rank, const Status& why);
  [[nodiscard]] bool is_lost(Rank peer) const { return peers_[static_cast<std::size_t>(peer)].is_lost; }
  [[nodiscard]] bool has_route(Rank peer) const { return peers_[static_cast<std::size_t>(peer)].route != nullptr; }
  [[nodiscard]] bool uses(Rank peer, const Transport& route) const {
    return peers_[static_cast<std::size_t>(peer)].route == &route;
  }
  [[nodiscard]] bool is_connected(Rank peer) const { return peers_[static_cast<std::size_t>(peer)].heard_hello; }

  // ---- posts ----
  void post_send(SendPost& post);
  void post_receive(ReceivePost& post);
  /// Makes the view of a lent receive outlive on_received: in place while that holds up nobody, else as a copy. To be
  /// called from on_received only. Returns the bytes.
  const std::byte* keep(ReceivePost& post, std::span<const std::byte> view);
  /// Ends a kept receive. False: the view changed meanwhile.
  [[nodiscard]] bool give_back(ReceivePost& post);
  /// Takes a post back, whatever its state; no event follows.
  void cancel(SendPost& post);
  void cancel(ReceivePost& post);
  /// Drops what has arrived for a group up to and including `epoch`.
  void drop_arrivals(std::uint64_t group, std::uint32_t epoch);
  /// A receive that ended in error consumes its message: the late one is dropped and its sender told.
  void refuse_late(const MessageKey& key);

  /// A message outside matching and credit: questions and answers. At most kEagerBytes of payload.
  void send_control(Rank rank, const Header& header, std::span<const std::byte> payload);

  // ---- progress ----
  /// Polls the transports and moves what waits. Returns whether anything happened.
  bool progress();
  /// Something that has been handed over has not left yet and needs progress().
  [[nodiscard]] bool has_unfinished() const {
    return !writings_.empty() || !waiting_for_staging_.empty() || posted_writes_.size() > 0 || queued_control_ > 0;
  }
  /// Bytes held for unmatched arrivals and kept copies.
  [[nodiscard]] std::size_t memory_in_use() const { return arrivals_.bytes() + kept_copies_bytes_; }

 private:
  struct Outgoing {            // an announced message that is waiting for its grant, or for being read
    SendPost* post = nullptr;  // write, messages: its payload is still the user's
    Rank peer = kNoRank;
    Transport* route = nullptr;
    Block block;  // pull: staged
  };
  struct Incoming {               // a granted transfer
    ReceivePost* post = nullptr;  // null: cancelled, the block is quarantined until the write has landed
    Rank peer = kNoRank;
    Transport* route = nullptr;
    Block block;
    std::uint64_t arrived = 0;  // bitmap of pieces (messages) or stripes (write)
    std::uint64_t expected = 0;
  };
  struct Writing {  // a granted send on its way
    Rank peer = kNoRank;
    Transport* route = nullptr;
    Block block;
    std::size_t bytes = 0;
    RemoteBlock remote;
    std::uint32_t transfer = 0;  // the receiver's handle
    std::size_t offset = 0;      // messages: sent so far
  };
  struct Granted {  // a granted send without a block to stage in
    SendPost* post = nullptr;
    Writing writing;
  };
  /// Binds events to the transport that they come from.
  class Inlet;

  Peer& peer_of(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  Header header_for(Peer& peer, MessageKind kind);

  // messenger.cc: connections, control, credit
  Inlet& inlet_of(const Transport& route);
  void greet(Peer& peer);
  Posted transmit(Peer& peer, Header& header, std::span<const std::byte> payload);
  void control(Peer& peer, Header header, std::span<const std::byte> payload);
  bool flush_control(Peer& peer);
  void return_credit(Peer& peer);
  void grow_window(Peer& peer);
  bool move_waiting(Peer& peer);

  // sending.cc
  bool start(Peer& peer, SendPost& post);
  bool start_eager(Peer& peer, SendPost& post, bool needs_credit);
  bool start_pull(Peer& peer, SendPost& post, bool needs_credit);
  bool start_announce(Peer& peer, SendPost& post, bool needs_credit);
  void enqueue(Peer& peer, SendPost& post);
  void dequeue(SendPost& post);
  bool pump(Peer& peer);
  void on_want(Peer& peer, const Header& header);
  void on_grant(Peer& peer, Transport& route, const Header& header, std::span<const std::byte> payload);
  void on_done(Peer& peer, Transport& route, const Header& header);
  void withdraw(Peer& peer, std::uint32_t transfer);
  bool start_writing(SendPost& post, Writing writing);
  bool advance(Writing& writing);
  bool advance_writings();
  void on_write_done(Transport& route, std::uint64_t cookie);
  std::optional<Block> take_staging(Peer& peer, bool is_wanted);

  // arrivals.cc
  void on_message(Transport& route, Rank source, const Header& header, std::span<const std::byte> payload);
  void on_written(Transport& route, std::uint32_t immediate);
  void on_data(Peer& peer, const Header& header, std::span<const std::byte> payload);
  void on_arrival(Peer& peer, Transport& route, const Header& header, std::span<const std::byte> payload);
  void hold_unmatched(Peer& peer, Transport& route, const Header& header, std::span<const std::byte> payload);
  void meet(Peer& peer, ReceivePost& post, Transport& route, const Header& header, std::span<const std::byte> payload);
  void read_shared(Peer& peer, ReceivePost& post, std::span<const std::byte> payload);
  void request_landing(Peer& peer, ReceivePost& post);
  bool grant_landing(Peer& peer, ReceivePost& post);
  void land(std::uint32_t handle, Incoming& incoming);
  void on_withdrawn(Peer& peer, std::uint32_t handle, const Incoming& incoming);
  void finish_landing(Peer& peer, Transport& route, const Block& block);
  void send_done(Peer& peer, Transport& route, const Header& announce, const SharedBlock& shared);
  void want(Peer& peer, ReceivePost& post);
  void drop(Peer& peer, Transport& route, const Header& header, std::span<const std::byte> payload, bool tell);
  void release_slot(Peer& peer, const Header& header, bool was_prompt);
  void unpost(Peer& peer, ReceivePost& post);

  const Options options_;
  MessengerEvents& events_;
  std::vector<Peer> peers_;
  std::vector<std::unique_ptr<Inlet>> inlets_;
  std::vector<Rank> active_;  // peers with a route, in the order of connection

  KeyTable<ReceivePost> posted_;
  KeyTable<SendPost> queued_;
  UnexpectedStore arrivals_;
  SlotTable<Outgoing, 20, 12> outgoing_;
  SlotTable<Incoming, 12, 12> incoming_;
  std::deque<Writing> writings_;
  std::deque<Granted> waiting_for_staging_;
  SlotTable<Block, 16, 16> posted_writes_;
  RecentKeys late_;    // receives that ended in error
  RecentKeys wanted_;  // wants that found nothing queued
  std::size_t kept_copies_bytes_ = 0;
  std::size_t queued_control_ = 0;  // over all peers
};

}  // namespace neuron
