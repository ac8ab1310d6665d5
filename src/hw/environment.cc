#include "hw/environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "hw/cpu.h"

namespace weft {
namespace {

constexpr uint64_t kMostMib = uint64_t{1} << 40;

std::string_view Variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string_view() : value;
}

std::optional<uint64_t> Mib(std::string_view text) {
    uint64_t mib = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), mib);
    const bool whole = code == std::errc() && end == text.data() + text.size();
    if (!whole || mib == 0 || mib > kMostMib) return {};
    return mib;
}

Status CheckWord(const char* name, const std::vector<std::string_view>& known) {
    const std::string_view word = Variable(name);
    if (word.empty() || std::ranges::find(known, word) != known.end()) return {};
    std::string list;
    for (const std::string_view each : known) {
        list += list.empty() ? "" : ", ";
        list += each;
    }
    return MakeError(ErrorCode::kUsage, "{}={}: expected one of {}", name, word.substr(0, 80),
                     list);
}

}  // namespace

Status CheckEnvironment() {
    const std::string_view memory = Variable("WEFT_MEMORY_MIB");
    if (!memory.empty() && !Mib(memory)) {
        return MakeError(ErrorCode::kUsage,
                         "WEFT_MEMORY_MIB={}: expected a whole number of MiB from 1 to {}, without "
                         "a unit",
                         memory.substr(0, 80), kMostMib);
    }
    std::vector<std::string_view> levels;
    for (const CpuLevel level : kCpuLevels) levels.emplace_back(CpuLevelName(level));
    WEFT_TRY(CheckWord("WEFT_CPU", levels));
    WEFT_TRY(CheckWord("WEFT_LOG", {"debug", "info", "warning", "error"}));
    return CheckWord("WEFT_LOG_FORMAT", {"text", "json"});
}

std::optional<uint64_t> MemoryOfEnvironment() {
    const std::optional<uint64_t> mib = Mib(Variable("WEFT_MEMORY_MIB"));
    return mib ? std::optional(*mib << 20) : std::nullopt;
}

}  // namespace weft
