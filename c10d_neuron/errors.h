// The c10d border: a Status becomes the exception that users of torch.distributed know. Free functions; any thread.
//   invalid_argument -> ValueError, unsupported -> NotImplementedError, unavailable -> DistNetworkError,
//   internal -> RuntimeError, everything else -> DistBackendError
#pragma once
#include <exception>

#include "transport/base/status.h"

namespace neuron {

[[nodiscard]] std::exception_ptr as_exception(const Status& status);
[[noreturn]] void raise(const Status& status);

template <typename T>
T value_or_raise(Result<T> result) {
  if (!result.is_ok()) raise(result.status());
  return std::move(result).value();
}

}  // namespace neuron
