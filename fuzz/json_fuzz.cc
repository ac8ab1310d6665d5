// Fuzzes the reader of untrusted JSON (base/json.h). Within its limits it reads the same as
// nlohmann's parser. The result can be copied, dumped and read again. Errors contain none of the
// text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"

namespace weft {
namespace {

constexpr JsonLimits kLimits{.depth = 20, .values = 300, .keys = 20};

size_t DepthOf(const nlohmann::json& json) {
    size_t deepest = 0;
    if (!json.is_structured()) return 0;
    for (const auto& child : json) deepest = std::max(deepest, DepthOf(child));
    return deepest + 1;
}

size_t CountOf(const nlohmann::json& json) {
    size_t count = 1;
    if (!json.is_structured()) return count;
    for (const auto& child : json) count += CountOf(child);
    return count;
}

void Read(std::string_view text) {
    const auto parsed = ParseJsonText(text, kLimits);
    const auto ordered = ParseOrderedJsonText(text, kLimits);
    WEFT_CHECK(parsed.ok() == ordered.ok());
    if (!parsed.ok()) {
        WEFT_CHECK(parsed.error().message == ordered.error().message);
        WEFT_CHECK(parsed.error().message.size() < 300);
        if (parsed.error().code == ErrorCode::kUnsupported) return;
        if (text.find('\0') != text.npos) return;  // for nlohmann the end
        WEFT_CHECK(nlohmann::json::parse(text, nullptr, false).is_discarded());
        return;
    }
    WEFT_CHECK(DepthOf(*parsed) <= kLimits.depth && CountOf(*parsed) <= kLimits.values);
    WEFT_CHECK(*parsed == nlohmann::json::parse(text, nullptr, false));
    const std::string dumped = ordered->dump();
    WEFT_CHECK(dumped == nlohmann::ordered_json::parse(text, nullptr, false).dump());
    WEFT_CHECK(ParseOrderedJsonText(dumped, kLimits)->dump() == dumped);
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    weft::Read({reinterpret_cast<const char*>(data), size});
    return 0;
}
