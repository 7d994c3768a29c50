// Token: the job's secret. Rank 0 makes one and hands it out through the store, or every rank reads it from a file.
// Pure functions and one that reads a file; any thread; used while joining. Errors: refused (a file that others can
// read), unavailable (no such file), invalid_argument (an empty one). No message contains the secret.
#pragma once
#include <string>

#include "transport/base/status.h"

namespace neuron::control {

/// 32 random bytes.
std::string make_token();
/// The file's content without the white space around it. It must be readable by its owner, this user, only.
Result<std::string> read_token_file(const std::string& path);
/// Bytes that say nothing of the token, but only who knows it can compute: for names and proofs.
std::string derive(const std::string& token, std::string_view purpose);

}  // namespace neuron::control
