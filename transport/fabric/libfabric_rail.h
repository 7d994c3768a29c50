// LibfabricRail: the Rail over one libfabric endpoint. Receives are posted once and again at once after each arrival;
// sends leave from bounce buffers; writes leave from blocks into granted blocks, announced by their immediates. A
// resource; owner, thread and failures as transport/fabric/open.h says.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/fabric/block_pool.h"
#include "transport/fabric/early_messages.h"
#include "transport/fabric/endpoint.h"
#include "transport/fabric/open.h"
#include "transport/fabric/peers.h"
#include "transport/fabric/provider.h"
#include "transport/fabric/requests.h"

namespace neuron::fabric {

class LibfabricRail final : public Rail {
 public:
  static Result<std::unique_ptr<Rail>> open(const Options& options, const Clock& clock);
  ~LibfabricRail() override;
  LibfabricRail(const LibfabricRail&) = delete;
  LibfabricRail& operator=(const LibfabricRail&) = delete;

  [[nodiscard]] TransportTraits traits() const override;
  [[nodiscard]] std::vector<std::byte> address() const override { return encode(own_); }
  Status connect(Rank rank, std::span<const std::byte> address) override;
  [[nodiscard]] bool is_connected(Rank rank) const override;
  void disconnect(Rank rank) override;

  Posted send(Rank rank, const Header& header, std::span<const std::byte> payload) override;

  std::optional<Block> take_block() override { return blocks_.take(); }
  void return_block(const Block& block) override { blocks_.give_back(block.index); }
  SharedBlock share(const Block& block) override;
  const std::byte* view(Rank, const SharedBlock&, std::size_t) override { return nullptr; }
  bool is_current(Rank, const SharedBlock&) override { return false; }
  RemoteBlock expose(const Block& block) override { return blocks_.expose(block.index); }
  Posted write(Rank rank, const Block& from, std::size_t bytes, const RemoteBlock& to, std::uint32_t immediate,
               std::uint64_t cookie) override;

  bool poll(TransportEvents& events) override;
  [[nodiscard]] int wait_descriptor() const override { return endpoint_->wait_descriptor(); }
  bool arm() override;
  void disarm() override {}

  [[nodiscard]] TrafficCount traffic(Rank rank) const override;
  [[nodiscard]] std::string description() const override;
  [[nodiscard]] Dropped dropped() const override { return dropped_; }

 private:
  LibfabricRail(std::unique_ptr<Endpoint> endpoint, Address own, const Offer& offer, const Options& options,
                const Clock& clock);
  Status prepare_messages();

  // Posting.
  bool post_receive(Request* request);
  void post_missing_receives();
  Posted settle(Peer& peer, long returned, const char* call);
  void note_refusal(Peer& peer);

  // Completing.
  std::size_t read_completions(TransportEvents& events);
  bool read_error(TransportEvents& events);
  void complete(const fi_cq_data_entry& entry, TransportEvents& events);
  void complete_receive(Request* request, std::size_t bytes, TransportEvents& events);
  void complete_send(Request* request);
  void complete_write(Request* request, const Status& status, TransportEvents& events);
  void deliver(std::span<const std::byte> message, TransportEvents& events);
  void deliver_early_messages(TransportEvents& events);

  // Losing.
  void lose(Peer& peer, const Status& reason, bool is_flush);
  void lose_all(const Status& reason);
  bool report_losses(TransportEvents& events);
  void check_refusals();
  void flush();

  // The endpoint outlives the memory that is registered with it: destroyed from the last to the first, except that the
  // destructor closes the endpoint proper before any memory goes.
  std::unique_ptr<Endpoint> endpoint_;
  Address own_;
  Offer offer_;
  bool writes_;
  Nanoseconds stall_limit_;
  const Clock& clock_;

  PeerTable peers_;
  BlockPool blocks_;
  Region message_memory_;
  RequestPool receives_;
  RequestPool sends_;
  RequestPool write_requests_;
  std::vector<Request*> unposted_receives_;

  EarlyMessages early_;
  std::vector<Rank> connected_late_;  // ranks that early messages wait for, and that are connected now
  std::vector<Peer*> refusing_;       // with refused_since set
  std::vector<Rank> losses_;          // to be reported
  Dropped dropped_;
};

}  // namespace neuron::fabric
