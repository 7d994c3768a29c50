// Which way leads to which peer: shared memory where a descriptor can be handed over, else the fabric.
#include "collectives/run/engine_impl.h"
#include "transport/base/log.h"

namespace neuron {

/// Sleeping threads wake when the transport has something.
void Engine::Impl::watch(Transport& transport) {
  const int descriptor = transport.wait_descriptor();
  if (descriptor < 0) {
    if (!transport.traits().rings_doorbell) must_poll_ = true;
    return;
  }
  wait_set_.add(descriptor);
  background_deep_.add(descriptor);
}

/// Opens the fabric if it is not open yet. Errors: unavailable, saying what is missing.
Status Engine::Impl::need_fabric() {
  if (options_.fabric != nullptr) return {};
  if (!options_.open_fabric) return {Code::unavailable, "there is neither shared memory with it nor a fabric"};
  auto opened = options_.open_fabric();
  if (!opened) return {opened.status().code(), "there is no shared memory with it, and: " + opened.status().message()};
  options_.fabric = std::move(*opened);
  fabric_name_ = options_.fabric->traits().name;
  executor_.messenger().add_transport(*options_.fabric);
  watch(*options_.fabric);
  return {};
}

void Engine::Impl::on_connection_needed(Rank peer) {
  const PeerInfo& info = options_.peers[static_cast<std::size_t>(peer)];
  const bool may_share = options_.shared_memory != nullptr && !info.shared_memory_address.empty() &&
                         options_.topology.same_host(options_.rank, peer);
  if (may_share) return connect_shared_memory(peer);
  connect_fabric(peer);
}

void Engine::Impl::connect_shared_memory(Rank peer) {
  const auto& address = options_.peers[static_cast<std::size_t>(peer)].shared_memory_address;
  const Status status = options_.shared_memory->connect(peer, address);
  if (!status) return on_route_lost(peer, *options_.shared_memory, status);
  executor_.messenger().use_route(peer, *options_.shared_memory);
}

void Engine::Impl::connect_fabric(Rank peer) {
  if (const Status status = need_fabric(); !status)
    return executor_.on_death(peer, "it cannot be reached: " + status.message());
  if (options_.control == nullptr) {  // loopback: the hub knows everyone
    if (const Status status = options_.fabric->connect(peer, {}); !status)
      return executor_.on_death(peer, status.message());
    return executor_.messenger().use_route(peer, *options_.fabric);
  }
  options_.control->send(peer, encode(Connect{false, options_.fabric->address(), ""}));
}

/// A peer's address has come: it is inserted, and ours goes back. Either side writes only after the other's hello.
void Engine::Impl::on_connect(Rank source, const Connect& connect) {
  if (const Status status = need_fabric(); !status) {
    if (!connect.is_reply) options_.control->send(source, encode(Connect{true, {}, status.message()}));
    return;
  }
  if (!connect.error.empty()) return executor_.on_death(source, "it cannot be reached: " + connect.error);
  if (const Status status = options_.fabric->connect(source, connect.address); !status) {
    if (!connect.is_reply) options_.control->send(source, encode(Connect{true, {}, status.message()}));
    return executor_.on_death(source, "it cannot be reached: " + status.message());
  }
  if (!connect.is_reply) options_.control->send(source, encode(Connect{true, options_.fabric->address(), ""}));
  executor_.messenger().use_route(source, *options_.fabric);
}

void Engine::Impl::on_route_lost(Rank peer, Transport& route, const Status& why) {
  const Messenger& messenger = executor_.messenger();
  if (messenger.is_lost(peer)) return;
  if (!messenger.uses(peer, route) && messenger.has_route(peer)) return;  // another way is in use
  const bool was_never_used = !messenger.is_connected(peer);
  if (&route == options_.shared_memory.get() && was_never_used) {
    log_once(LogLevel::warning, "No shared memory with rank " + std::to_string(peer) + " (" + why.message() +
                                    "); its messages go through the fabric.");
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
