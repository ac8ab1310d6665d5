#include "backend/cpu/shares.h"

#include <algorithm>
#include <vector>

#include "tensor/half_rows.h"

namespace weft::backend {
namespace {

template <typename T>
std::span<T> As(std::span<std::byte> bytes) {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

void Store(std::span<const float> sums, bool adds, std::span<float> share) {
    for (size_t i = 0; i < sums.size(); ++i) share[i] = adds ? share[i] + sums[i] : sums[i];
}

// Of a narrow type, a block at a time.
constexpr size_t kBlock = 1024;
void Store(DType dtype, std::span<const float> sums, bool adds, std::byte* share) {
    if (!adds) return NarrowRow(dtype, sums, share);
    float block[kBlock];
    for (size_t begin = 0; begin < sums.size(); begin += kBlock) {
        const std::span<const float> part =
            sums.subspan(begin, std::min(kBlock, sums.size() - begin));
        const std::span<float> all(block, part.size());
        WidenRow(dtype, share + 2 * begin, all);
        for (size_t i = 0; i < part.size(); ++i) all[i] += part[i];
        NarrowRow(dtype, all, share + 2 * begin);
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
    if (comm != nullptr) {
        const coll::Wire wire = dtype == DType::kF16 ? coll::Wire::kF16 : coll::Wire::kBF16;
        const auto take = [&](size_t at, std::span<const float> sums) {
            Store(dtype, sums, adds, share.data() + 2 * at);
        };
        return comm->ReduceScatter(wire, As<const uint16_t>(all), counts, take, tag);
    }
    float block[kBlock];
    for (size_t at = 0; at < share.size() / 2; at += kBlock) {
        const std::span<float> sums(block, std::min(kBlock, share.size() / 2 - at));
        WidenRow(dtype, all.data() + 2 * (static_cast<size_t>(begin) + at), sums);
        Store(dtype, sums, adds, share.data() + 2 * at);
    }
    return {};
}

}  // namespace weft::backend
