// check: whether a request makes sense for its collective, group size and types. A pure function; any thread.
// Errors: invalid_argument or unsupported, naming argument, value and remedy.
#pragma once
#include "collectives/run/request.h"
#include "transport/base/status.h"

namespace neuron {

Status check(const Request& request, Rank rank, Rank world);

}  // namespace neuron
