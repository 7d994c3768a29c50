// loopback: a Transport between engines in one process, for tests: ranks are threads, and everything that a real
// provider may do happens at random from a seed. Hub: the wire, shared by all ranks, any thread. Endpoint: one rank's
// Transport.
//
// Personalities. Default: in order, remote writes. efa_direct: messages and writes overtake one another, posts are
// refused now and then, the payload of a write is delivered twice, the second time just before its completion.
// no_remote_write: the same grants are answered by messages.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/base/random.h"
#include "transport/base/wait_set.h"
#include "transport/transport.h"

namespace neuron::loopback {

struct Personality {
  std::uint64_t seed = 1;
  bool remote_write = true;
  std::uint32_t reorder_window = 0;  // a delivery may overtake so many others; 0: in order
  std::uint32_t refuse_one_in = 0;   // posts answered `again`; 0: never
  bool payload_twice = false;        // a write's bytes land early as well
  std::size_t receive_slots = 256;
  std::size_t blocks = 64;

  static Personality in_order() { return {}; }
  static Personality efa_direct(std::uint64_t seed) { return {seed, true, 16, 8, true, 256, 64}; }
  static Personality no_remote_write(std::uint64_t seed) { return {seed, false, 8, 8, false, 256, 64}; }
};

class Hub {
 public:
  Hub(Rank world, Personality personality);
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  /// The transport of one rank; the hub must outlive it. `doorbell` is rung when something arrives for a sleeping rank.
  std::unique_ptr<Transport> endpoint(Rank rank, std::shared_ptr<Doorbell> doorbell);
  /// From now on nothing reaches or leaves `rank`, and its peers hear that it is lost.
  void kill(Rank rank);

 private:
  friend class Endpoint;
  struct Delivery;
  struct Mailbox;

  const Personality personality_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
};

}  // namespace neuron::loopback
