// Log: one line per message to stderr, written with one write(2) so that lines of several ranks do not mix.
// Process-wide threshold; any thread; never on the hot path; never a secret.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace neuron {

enum class LogLevel : std::uint8_t { error, warning, info, debug };

std::optional<LogLevel> log_level_named(std::string_view name);

void set_log_level(LogLevel level);
/// "rank 3" or so, printed in each line; set once the rank is known.
void set_log_identity(std::string identity);
[[nodiscard]] bool logs(LogLevel level);
void log(LogLevel level, std::string_view message);
/// Logs a message only the first time that this process says it.
void log_once(LogLevel level, std::string_view message);

}  // namespace neuron
