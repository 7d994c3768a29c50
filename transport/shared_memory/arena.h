// Arena: this process's sealed shared memory. PeerArena: another's, mapped for reading only.
// Resources; the Endpoint owns its Arena, each Peer its PeerArena. Made by any thread. Creation fails where the kernel
// or a sandbox has no memfd with seals; mapping fails when the peer's descriptor is not sealed as it must be.
//
// A rank writes its own memory only: the owner maps its arena writable, then seals it, so that nobody can map it
// writable or change its size any more, and only then hands the descriptor out. A peer that was stopped and continues
// after a timeout can therefore never scribble on memory that has been used again.
#pragma once
#include <cstdint>
#include <memory>

#include "transport/base/descriptor.h"
#include "transport/base/status.h"
#include "transport/shared_memory/layout.h"

namespace neuron::shared_memory {

/// A piece of address space, unmapped at its end. Not inherited by a forked child.
class Mapping {
 public:
  Mapping(std::byte* address, std::size_t bytes) : address_(address), bytes_(bytes), fork_count_(fork_count()) {}
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] std::byte* address() const { return address_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] bool is_inherited() const { return fork_count_ != fork_count(); }

 private:
  std::byte* address_;
  std::size_t bytes_;
  std::uint32_t fork_count_;
};

class Arena {
 public:
  /// Errors: unavailable, with the system call that failed.
  static Result<Arena> create(Rank rank, std::uint64_t nonce, const Layout& layout);

  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] std::byte* at(std::size_t offset) const { return mapping_->address() + offset; }
  [[nodiscard]] ControlPage& control() const { return *reinterpret_cast<ControlPage*>(mapping_->address()); }
  [[nodiscard]] int descriptor() const { return descriptor_.number(); }
  /// Random; ranks that are threads of one process find each other's mapping by it.
  [[nodiscard]] std::uint64_t id() const { return id_; }
  [[nodiscard]] bool is_inherited() const { return mapping_->is_inherited(); }

 private:
  Arena(const Layout& layout, Descriptor descriptor, std::shared_ptr<const Mapping> mapping, std::uint64_t id);

  Layout layout_;
  Descriptor descriptor_;
  std::shared_ptr<const Mapping> mapping_;
  std::uint64_t id_;
};

class PeerArena {
 public:
  /// Checks seals, size and owner before anything in it is used. An arena of this very process is not mapped again:
  /// then both ends use one address, and the memory lives as long as either. Errors: refused, with what is wrong with
  /// the descriptor; unavailable.
  static Result<PeerArena> map(const Descriptor& descriptor, std::uint64_t id, const Layout& layout, Rank rank,
                               std::uint64_t nonce);

  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] const std::byte* at(std::size_t offset) const { return mapping_->address() + offset; }
  [[nodiscard]] const ControlPage& control() const {
    return *reinterpret_cast<const ControlPage*>(mapping_->address());
  }

 private:
  PeerArena(const Layout& layout, std::shared_ptr<const Mapping> mapping)
      : layout_(layout), mapping_(std::move(mapping)) {}

  Layout layout_;
  std::shared_ptr<const Mapping> mapping_;
};

}  // namespace neuron::shared_memory
