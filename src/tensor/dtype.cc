#include "tensor/dtype.h"

#include <algorithm>
#include <cctype>

namespace weft {

std::optional<DType> DTypeOfGguf(uint32_t gguf_type) {
    for (const DTypeInfo& info : kFileDTypes) {
        if (static_cast<uint32_t>(info.gguf_type) == gguf_type) return info.dtype;
    }
    return std::nullopt;
}

std::optional<DType> DTypeOfName(std::string_view name) {
    const auto same = [](char a, char b) { return std::toupper(a) == std::toupper(b); };
    for (const DTypeInfo& info : kFileDTypes) {
        if (std::ranges::equal(info.name, name, same)) return info.dtype;
    }
    return std::nullopt;
}

}  // namespace weft
