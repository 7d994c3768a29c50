// Buffer: a piece of memory and the domain it lies in. A value; it never owns.
#pragma once
#include <cstddef>
#include <cstdint>

namespace neuron {

/// Who may touch the bytes. `device` memory is never dereferenced by the CPU: it is copied through a DeviceMemory.
enum class MemoryDomain : std::uint8_t { host, device };

struct Buffer {
  std::byte* address = nullptr;
  std::size_t bytes = 0;
  MemoryDomain domain = MemoryDomain::host;

  [[nodiscard]] Buffer slice(std::size_t offset, std::size_t length) const {
    return Buffer{address + offset, length, domain};
  }
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

}  // namespace neuron
