// Which way leads to which peer: shared memory where a descriptor can be handed over, else the fabric.
#include "collectives/run/engine_impl.h"
#include "transport/base/log.h"

namespace neuron {

void Engine::Impl::on_connection_needed(Rank peer) {
  const PeerInfo& info = options_.peers[static_cast<std::size_t>(peer)];
  const bool may_share = options_.shared_memory != nullptr && !info.shared_memory_address.empty() &&
                         options_.topology.same_host(options_.rank, peer);
  if (may_share) return connect_shared_memory(peer);
  connect_fabric(peer);
}

void Engine::Impl::connect_shared_memory(Rank peer) {
  const auto& address = options_.peers[static_cast<std::size_t>(peer)].shared_memory_address;
  Status status = options_.shared_memory->connect(peer, address);
  if (!status) return on_route_lost(peer, *options_.shared_memory, status);
  executor_.messenger().use_route(peer, *options_.shared_memory);
}

void Engine::Impl::connect_fabric(Rank peer) {
  if (options_.fabric == nullptr) {
    return executor_.on_death(peer, "it cannot be reached: there is neither shared memory with it nor a fabric");
  }
  if (options_.control == nullptr) {  // loopback: the hub knows everyone
    if (Status status = options_.fabric->connect(peer, {}); !status) return executor_.on_death(peer, status.message());
    return executor_.messenger().use_route(peer, *options_.fabric);
  }
  options_.control->send(peer, encode(Connect{false, options_.fabric->address(), ""}));
}

/// A peer's address has come: it is inserted, and ours goes back. Either side writes only after the other's hello.
void Engine::Impl::on_connect(Rank source, const Connect& connect) {
  if (options_.fabric == nullptr) {
    if (!connect.is_reply) options_.control->send(source, encode(Connect{true, {}, "it has no fabric"}));
    return;
  }
  if (!connect.error.empty()) return executor_.on_death(source, "it cannot be reached: " + connect.error);
  if (Status status = options_.fabric->connect(source, connect.address); !status) {
    if (!connect.is_reply) options_.control->send(source, encode(Connect{true, {}, status.message()}));
    return executor_.on_death(source, "it cannot be reached: " + status.message());
  }
  if (!connect.is_reply) options_.control->send(source, encode(Connect{true, options_.fabric->address(), ""}));
  executor_.messenger().use_route(source, *options_.fabric);
}

void Engine::Impl::on_route_lost(Rank peer, Transport& route, const Status& why) {
  Messenger& messenger = executor_.messenger();
  const bool was_never_used = !messenger.is_connected(peer);
  if (&route == options_.shared_memory.get() && was_never_used && options_.fabric != nullptr) {
    log_once(LogLevel::warning, "No shared memory with rank " + std::to_string(peer) + " (" + why.message() +
                                    "); its messages go through " + fabric_name_ + ".");
    return connect_fabric(peer);
  }
  executor_.on_death(peer, why.message());
}

void Engine::Impl::broadcast(const ControlMessage& message) {
  if (options_.control != nullptr) options_.control->broadcast(encode(message));
}

void Engine::Impl::deliver(Rank source, std::span<const std::byte> bytes) {
  auto message = decode(bytes);
  if (!message) {
    log(LogLevel::warning, "Dropped a control message from rank " + std::to_string(source) + " that does not decode.");
    return;
  }
  post([this, source, message = std::move(*message)](Executor& executor) {
    if (const auto* poison = std::get_if<Poison>(&message)) {
      executor.on_poison(*poison);
    } else {
      on_connect(source, std::get<Connect>(message));
    }
  });
}

}  // namespace neuron
