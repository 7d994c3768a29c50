#include "collectives/schedule/draw.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "collectives/schedule/cost.h"
#include "collectives/schedule/job.h"

namespace neuron {
namespace {

/// A message, or a local copy (from == to).
struct Arrow {
  int round = 0;  // when it leaves
  int end = 0;    // when it is used
  Rank from = 0;
  Rank to = 0;
  std::string source;
  std::string target;
  bool is_reduced = false;
};

std::string text_of(const Schedule& schedule, const Chunk& chunk, std::int64_t i) {
  if (chunk.space == Space::none) return "signal";
  return std::string(name_of(chunk.space)) + "[" + std::to_string(schedule.chunk_at(chunk, i)) + "]";
}

Result<std::vector<Arrow>> arrows_of(const std::vector<Schedule>& schedules) {
  const Result<Job> job = Job::create(schedules);
  if (!job) return job.status();
  const Result<Timeline> times = timeline(*job, {.alpha = 1}, 0);
  if (!times) return times.status();
  const auto span = [&](Rank rank, std::uint32_t k) { return (*times)[static_cast<std::size_t>(rank)][k]; };
  const auto text = [&](Rank rank, std::uint32_t k, const Chunk& chunk) {
    return text_of(job->schedule(rank), chunk, job->instances(rank)[k].iteration);
  };
  std::vector<Arrow> arrows;
  for (const Message& it : job->messages()) {
    const Step& step = job->step(it.destination, it.receive);
    arrows.push_back({.round = static_cast<int>(std::lround(span(it.source, it.send).issued)),
                      .end = static_cast<int>(std::lround(span(it.destination, it.receive).completed)),
                      .from = it.source,
                      .to = it.destination,
                      .source = text(it.source, it.send, job->step(it.source, it.send).source),
                      .target = text(it.destination, it.receive, step.target),
                      .is_reduced = step.kind == StepKind::reduce});
  }
  for (Rank rank = 0; rank < job->world(); ++rank) {
    for (std::uint32_t k = 0; k < job->instances(rank).size(); ++k) {
      const Step& step = job->step(rank, k);
      if (step.kind != StepKind::copy) continue;
      const int round = static_cast<int>(std::lround(span(rank, k).issued));
      arrows.push_back({round, round, rank, rank, text(rank, k, step.source), text(rank, k, step.target), false});
    }
  }
  std::sort(arrows.begin(), arrows.end(), [](const Arrow& a, const Arrow& b) {
    return std::tie(a.round, a.from, a.to, a.source, a.target) < std::tie(b.round, b.from, b.to, b.source, b.target);
  });
  return arrows;
}

std::string title_of(const Schedule& schedule) {
  return std::string(name_of(schedule.algorithm)) + " " + std::string(name_of(schedule.collective)) + ", " +
         std::to_string(schedule.world) + " ranks";
}

// The geometry of the figure, in pixels.
constexpr int kColumn = 150;
constexpr int kRow = 90;
constexpr int kLeft = 60;
constexpr int kTop = 70;
constexpr int kLabelRoom = 60;

std::string text_at(int x, int y, const std::string& what, const char* style = "") {
  return "<text x='" + std::to_string(x) + "' y='" + std::to_string(y) + "'" + style + ">" + what + "</text>\n";
}

std::string line_between(int x1, int y1, int x2, int y2, const char* style) {
  return "<line x1='" + std::to_string(x1) + "' y1='" + std::to_string(y1) + "' x2='" + std::to_string(x2) + "' y2='" +
         std::to_string(y2) + "' " + style + "/>\n";
}

std::string svg_of(const Arrow& arrow) {
  const int x1 = kLeft + arrow.from * kColumn;
  const int x2 = kLeft + arrow.to * kColumn;
  const int y1 = kTop + arrow.round * kRow;
  const int y2 = kTop + arrow.end * kRow;
  if (arrow.from == arrow.to) return text_at(x1 + 8, y1 - 4, arrow.source + " = " + arrow.target, " class='copy'");
  const char* const style =
      arrow.is_reduced ? "class='reduced' marker-end='url(#blue)'" : "class='moved' marker-end='url(#black)'";
  // A third of the way: arrows of a round cross in the middle.
  const int x = x1 + (x2 - x1) / 3 + 4;
  const int y = y1 + (y2 - y1) / 3 - 2;
  return line_between(x1, y1, x2, y2, style) + text_at(x, y, arrow.source);
}

}  // namespace

Result<std::string> draw_text(const std::vector<Schedule>& schedules) {
  const Result<std::vector<Arrow>> arrows = arrows_of(schedules);
  if (!arrows) return arrows.status();
  std::string text = title_of(schedules.front()) + "\n";
  for (const Arrow& arrow : *arrows) {
    text += "round " + std::to_string(arrow.round + 1) + ": " + std::to_string(arrow.from);
    if (arrow.from == arrow.to) {
      text += " copies " + arrow.source + " into " + arrow.target + "\n";
      continue;
    }
    text += " --" + arrow.source + "--> " + std::to_string(arrow.to);
    if (arrow.target != "signal") {
      text += std::string(arrow.is_reduced ? " (reduce into " : " (into ") + arrow.target + ")";
    }
    text += "\n";
  }
  return text;
}

Result<std::string> draw_svg(const std::vector<Schedule>& schedules) {
  const Result<std::vector<Arrow>> arrows = arrows_of(schedules);
  if (!arrows) return arrows.status();
  int rounds = 1;
  for (const Arrow& arrow : *arrows) rounds = std::max(rounds, arrow.end);
  const auto world = static_cast<int>(schedules.size());
  const int width = 2 * kLeft + (world - 1) * kColumn + kLabelRoom;
  const int bottom = kTop + rounds * kRow;
  std::string svg = "<svg xmlns='http://www.w3.org/2000/svg' width='" + std::to_string(width) + "' height='" +
                    std::to_string(bottom + 30) +
                    "' font-family='sans-serif' font-size='12'>\n"
                    "<style>.moved{stroke:#333;stroke-width:1.5}.reduced{stroke:#1668b8;stroke-width:1.5}"
                    ".rank{stroke:#bbb}.round{stroke:#ddd;stroke-dasharray:4}.copy{fill:#777}</style>\n"
                    "<defs>";
  for (const auto& [name, color] : {std::pair{"black", "#333"}, std::pair{"blue", "#1668b8"}}) {
    svg += std::string("<marker id='") + name +
           "' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' markerHeight='7' orient='auto'>"
           "<path d='M0 0L10 5L0 10z' fill='" +
           color + "'/></marker>";
  }
  svg += "</defs>\n<rect width='100%' height='100%' fill='white'/>\n";
  svg += text_at(kLeft, 22, title_of(schedules.front()), " font-size='15' font-weight='bold'");
  for (int round = 0; round <= rounds; ++round) {
    const int y = kTop + round * kRow;
    svg += line_between(kLeft - 20, y, width - 20, y, "class='round'");
  }
  for (int rank = 0; rank < world; ++rank) {
    const int x = kLeft + rank * kColumn;
    svg +=
        line_between(x, kTop, x, bottom, "class='rank'") + text_at(x - 18, kTop - 14, "rank " + std::to_string(rank));
  }
  for (const Arrow& arrow : *arrows) svg += svg_of(arrow);
  return svg + "</svg>\n";
}

}  // namespace neuron
