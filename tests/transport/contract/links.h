// Links: the ways in which two ranks of this product may be connected, each as a test can have it in one process: what
// the contract is checked against. A Wiring lives as long as the transports that it made.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/collectives/run/job.h"
#include "tests/seed.h"
#include "transport/fabric/open.h"
#include "transport/loopback/loopback.h"
#include "transport/shared_memory/endpoint.h"

namespace neuron::testing {

enum class Link : std::uint8_t {
  loopback_in_order,
  loopback_efa_direct,
  loopback_no_remote_write,
  shared_memory,
  fabric_write,
  fabric_messages
};

inline std::string name_of(Link link) {
  switch (link) {
    case Link::loopback_in_order:
      return "LoopbackInOrder";
    case Link::loopback_efa_direct:
      return "LoopbackEfaDirect";
    case Link::loopback_no_remote_write:
      return "LoopbackNoRemoteWrite";
    case Link::shared_memory:
      return "SharedMemory";
    case Link::fabric_write:
      return "FabricWrite";
    case Link::fabric_messages:
      return "FabricMessages";
  }
  return "unknown";
}

inline auto all_links() {
  return ::testing::Values(Link::loopback_in_order, Link::loopback_efa_direct, Link::loopback_no_remote_write,
                           Link::shared_memory, Link::fabric_write, Link::fabric_messages);
}

class Wiring {
 public:
  Wiring(Link link, Rank world) : link_(link), hub_(world, personality()), world_(world) {}

  [[nodiscard]] bool is_shared() const { return link_ == Link::shared_memory; }

  /// The transport of one rank; aborts where it cannot be made, since nothing can be tested then.
  std::unique_ptr<Transport> transport(Rank rank, const std::shared_ptr<Doorbell>& doorbell) {
    switch (link_) {
      case Link::loopback_in_order:
      case Link::loopback_efa_direct:
      case Link::loopback_no_remote_write:
        return hub_.endpoint(rank, doorbell);
      case Link::shared_memory:
        return shared_memory_of(rank, *doorbell);
      case Link::fabric_write:
      case Link::fabric_messages:
        break;
    }
    fabric::Options options;
    options.provider = "net";
    options.network_interface = "127.0.0.1";
    options.remote_write = link_ == Link::fabric_write;
    return made(fabric::open(options, clock_));
  }

 private:
  [[nodiscard]] loopback::Personality personality() const {
    if (link_ == Link::loopback_efa_direct) return loopback::Personality::efa_direct(test_seed());
    if (link_ == Link::loopback_no_remote_write) return loopback::Personality::no_remote_write(test_seed());
    return loopback::Personality::in_order();
  }
  [[nodiscard]] std::unique_ptr<Transport> shared_memory_of(Rank rank, const Doorbell& doorbell) const {
    shared_memory::Options options;
    options.rank = rank;
    options.nonce = Job::nonce(rank);
    options.local_ranks = static_cast<std::uint32_t>(world_);
    options.token = "the secret of this test";
    return made(shared_memory::Endpoint::create(std::move(options), doorbell));
  }
  template <typename Made>
  static std::unique_ptr<Transport> made(Result<Made> result) {
    if (!result) std::fprintf(stderr, "%s\n", result.status().message().c_str());
    if (!result) std::abort();
    return std::move(*result);
  }

  const Link link_;
  loopback::Hub hub_;
  const Rank world_;
  const SteadyClock clock_;
};

/// A Job over one kind of link.
class LinkedJob : private Wiring, public Job {
 public:
  LinkedJob(Link link, Rank world, const JobSettings& settings = {})
      : Wiring(link, world),
        Job(
            world,
            [this](Rank rank, EngineOptions& options) {
              (is_shared() ? options.shared_memory : options.fabric) = transport(rank, options.doorbell);
            },
            settings) {}
};

}  // namespace neuron::testing
