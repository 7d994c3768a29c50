#include "c10d_neuron/errors.h"

#include <c10/util/Exception.h>

namespace neuron {

std::exception_ptr as_exception(const Status& status) {
  const c10::SourceLocation here{__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)};
  switch (status.code()) {
    case Code::invalid_argument:
      return std::make_exception_ptr(c10::ValueError(here, status.message()));
    case Code::unsupported:
      return std::make_exception_ptr(c10::NotImplementedError(here, status.message()));
    case Code::unavailable:
      return std::make_exception_ptr(c10::DistNetworkError(here, status.message()));
    case Code::internal:
      return std::make_exception_ptr(c10::Error(here, status.message()));
    default:
      return std::make_exception_ptr(c10::DistBackendError(here, status.message()));
  }
}

void raise(const Status& status) { std::rethrow_exception(as_exception(status)); }

}  // namespace neuron
