// Fork guard: descriptors that a forked child must not keep. A DataLoader worker that inherits a socket keeps a dead
// rank's connection alive; so one pthread_atfork handler closes all registered descriptors in the child. Process-wide;
// any thread. Nothing here fails. Most callers want Descriptor (descriptor.h), which does this by itself.
#pragma once
#include <cstdint>

namespace neuron {

/// From now on a forked child closes this descriptor before fork() returns in it.
void register_descriptor(int descriptor);

/// False when this process does not hold the descriptor any more, because it is a fork of the one that registered it:
/// then the number may already belong to somebody else and must not be closed.
[[nodiscard]] bool unregister_descriptor(int descriptor);

/// How many forks lie between this process and the one that first used the fork guard. An object that remembers the
/// count at its creation knows later whether it was inherited: its threads, descriptors and arenas are not there any
/// more.
[[nodiscard]] std::uint32_t fork_count();

/// Whether this process was forked from one that had used the fork guard.
[[nodiscard]] inline bool forked_child() { return fork_count() != 0; }

}  // namespace neuron
