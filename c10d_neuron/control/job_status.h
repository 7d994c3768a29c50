// job_status: asks rank 0 of a running job who is there, with the key that it published in the store. A function that
// blocks up to two seconds; any thread but Control's. Errors: refused (a wrong token), unavailable (rank 0 does not
// answer, or the join is not complete), invalid_argument (not a key).
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "transport/base/rank.h"
#include "transport/base/status.h"

namespace neuron::control {

struct JobStatus {
  Rank world = 0;
  int hosts = 0;
  std::vector<Rank> left;
  std::vector<std::pair<Rank, std::string>> dead;  // with the reason
};

/// `join_key`: the store's value; `token`: of the token file, empty if the token is in the key.
Result<JobStatus> job_status(const std::string& join_key, const std::string& token);

/// The store's key under which rank 0 says where to join.
inline constexpr const char* kJoinKey = "c10d_neuron/join";

}  // namespace neuron::control
