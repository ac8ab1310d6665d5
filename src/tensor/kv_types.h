// Element types of a KV cache: of its keys and of its values.
#pragma once

#include <string>

#include "tensor/dtype.h"

namespace weft {

struct KvTypes {
    DType k = DType::kF16, v = DType::kF16;
    constexpr KvTypes() = default;
    // NOLINTNEXTLINE(google-explicit-constructor): one type means both types.
    constexpr KvTypes(DType both) : k(both), v(both) {}
    constexpr KvTypes(DType keys, DType values) : k(keys), v(values) {}
    bool operator==(const KvTypes&) const = default;
    // "Q8_0", or "Q8_0,Q4_0" if they differ.
    std::string Name() const {
        std::string name(Info(k).name);
        return v == k ? name : name + "," + std::string(Info(v).name);
    }
};

}  // namespace weft
