// draw: the schedules of all ranks as a figure, so that the figures in the documentation come from the code.
// Pure functions, any thread. Fail (internal) where the schedules are malformed or deadlock.
//
// Time runs downward in rounds of one message latency (timeline() with alpha = 1 and free bytes); an arrow goes from
// the round in which a send is issued to the one in which its message is used.
#pragma once
#include <string>
#include <vector>

#include "collectives/schedule/schedule.h"
#include "transport/base/status.h"

namespace neuron {

/// Lines such as "round 2: 1 --output[0]--> 2 (reduce into output[0])".
Result<std::string> draw_text(const std::vector<Schedule>& schedules);
/// A self-contained SVG: a column per rank, black arrows for moved chunks, blue ones for chunks that are combined.
Result<std::string> draw_svg(const std::vector<Schedule>& schedules);

}  // namespace neuron
