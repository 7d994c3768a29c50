// Participant: a rank as the control plane knows it: the Member that everyone hears of, and where its process accepts
// links. A value.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "c10d_neuron/control/control.h"

namespace neuron::control {

struct Participant {
  Member member;
  Rank world = 0;                      // as this rank believes
  std::vector<std::string> addresses;  // numeric, in the order in which others should try them
  std::uint16_t port = 0;              // of its TCP listener for links between hosts; 0: none
  bool leads = false;                  // spoke to rank 0 for its host
  std::uint64_t pid_namespace = 0;     // inode; Member::pid means something only inside one
};

/// "host trn-1, pid 4711".
inline std::string process_text(const Member& member) {
  return "host " + member.host_name + ", pid " + std::to_string(member.pid);
}
/// "rank 3 (host trn-1, pid 4711)".
inline std::string rank_text(const Member& member) {
  return "rank " + std::to_string(member.rank) + " (" + process_text(member) + ")";
}

}  // namespace neuron::control
