// Discovery: asks libfabric what it could open here and picks one endpoint of it.
// A value that owns its list; used once per rail, by the thread that opens it. Fails as `choose` does.
#pragma once
#include <vector>

#include "transport/base/status.h"
#include "transport/fabric/library.h"
#include "transport/fabric/provider.h"

namespace neuron::fabric {

struct Choice {
  InfoList list;
  const fi_info* info = nullptr;  // in `list`
  Offer offer;
};

Result<Choice> discover(const Library& library, const Wishes& wishes);

/// What `choose` needs to know of one entry of a getinfo list.
[[nodiscard]] Offer offer_of(const fi_info& info);

}  // namespace neuron::fabric
