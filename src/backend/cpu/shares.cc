#include "backend/cpu/shares.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "tensor/half.h"

namespace weft::backend {
namespace {

template <typename T>
std::span<T> As(std::span<std::byte> bytes) {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

void Store(std::span<const float> sums, bool adds, std::span<float> share) {
    for (size_t i = 0; i < sums.size(); ++i) share[i] = adds ? share[i] + sums[i] : sums[i];
}

void Store(std::span<const float> sums, bool adds, std::span<uint16_t> share) {
    for (size_t i = 0; i < sums.size(); ++i) {
        share[i] = F32ToBF16(adds ? BF16ToF32(share[i]) + sums[i] : sums[i]);
    }
}

}  // namespace

Status ReduceScatterInto(coll::Comm* comm, std::span<std::byte> all, DType dtype,
                         std::span<const int64_t> parts, int64_t begin, std::span<std::byte> share,
                         bool adds, const net::OpTag& tag) {
    const std::vector<size_t> counts(parts.begin(), parts.end());
    if (dtype == DType::kF32) {
        if (comm != nullptr) WEFT_TRY(comm->ReduceScatter(As<float>(all), counts, tag));
        const std::span<float> to = As<float>(share);
        Store(As<float>(all).subspan(static_cast<size_t>(begin), to.size()), adds, to);
        return {};
    }
    WEFT_CHECK(dtype == DType::kBF16);
    const std::span<uint16_t> to = As<uint16_t>(share), from = As<uint16_t>(all);
    if (comm != nullptr) {
        const auto take = [&](size_t at, std::span<const float> sums) {
            Store(sums, adds, to.subspan(at, sums.size()));
        };
        return comm->ReduceScatter(std::span<const uint16_t>(from), counts, take, tag);
    }
    for (size_t i = 0; i < to.size(); ++i) {
        const float sum = BF16ToF32(from[static_cast<size_t>(begin) + i]);
        to[i] = F32ToBF16(adds ? BF16ToF32(to[i]) + sum : sum);
    }
    return {};
}

}  // namespace weft::backend
