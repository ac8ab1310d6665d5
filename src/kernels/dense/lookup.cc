#include "kernels/dense/lookup.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/dense/row_copy.h"
#include "tensor/encode.h"
#include "tensor/noise.h"

namespace weft::kernels::dense {
namespace {

// Row `row` of contiguous rows of a block type, as floats.
void DecodeRow(const Kernels& kernels, DType dtype, const std::byte* rows, int64_t row,
               int64_t cols, float* y) {
    const int64_t bytes = RowBytes(dtype, cols);
    weft::Decode(dtype, {rows + row * bytes, static_cast<size_t>(bytes)},
                 {y, static_cast<size_t>(cols)}, kernels.level);
}

// The first index from `at` on whose token differs from the previous one.
int64_t NextToken(const EmbeddingGradArgs& args, int64_t at) {
    const auto token = [&](int64_t i) { return args.tokens[args.order[i]]; };
    while (at > 0 && at < args.count && token(at) == token(at - 1)) ++at;
    return at;
}

void AddNoise(const LookupArgs& args, int64_t i) {
    float* const y = args.y.Row<float>(i);
    const float amplitude = args.amplitudes[i];
    const auto key = static_cast<uint32_t>(args.keys[i]);
    for (int64_t c = 0; c < args.cols; ++c) {
        y[c] += amplitude * NoiseAt(key, static_cast<uint32_t>(c));
    }
}

}  // namespace

void Lookup(const Kernels& kernels, const LookupArgs& args, int part, int parts) {
    const bool noisy = args.keys != nullptr;
    WEFT_CHECK((args.blocks == nullptr && !noisy) || args.y.type == Element::kF32);
    const Range share = Share(args.count, 1, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) {
        const int64_t row = args.ids[i] - args.first_row;
        if (row < 0 || row >= args.table_rows) {
            ClearRow(args.y, i, 0, args.cols);
            continue;
        }
        if (args.blocks != nullptr) {
            DecodeRow(kernels, args.block_type, args.blocks, row, args.cols, args.y.Row<float>(i));
        } else {
            CopyRow(kernels, args.table, row, args.y, i, args.cols);
        }
        if (noisy && args.amplitudes[i] != 0) AddNoise(args, i);
    }
}

int64_t EmbeddingGradScratchBytes(const EmbeddingGradArgs& args) {
    return FloatScratchBytes(args.cols);
}

void EmbeddingGrad(const Kernels& kernels, const EmbeddingGradArgs& args, int part, int parts) {
    const Range share = Share(args.count, 1, part, parts);
    float* const floats = ScratchFloats(args, part);
    const Matrix sum{floats, args.cols};
    for (int64_t at = NextToken(args, share.begin), next = at; at < share.end; at = next) {
        next = NextToken(args, at + 1);
        const int64_t row = args.tokens[args.order[at]] - args.first_row;
        if (row < 0 || row >= args.table_rows) continue;
        std::fill_n(floats, args.cols, 0.0f);
        for (int64_t i = at; i < next; ++i) {
            AddRow(kernels, sum, args.dy.From(args.order[i], 0), sum, args.cols);
        }
        const Matrix table = args.table.From(row, 0);
        AddRow(kernels, table, sum, table, args.cols);
    }
}

void ScatterRows(const Kernels& kernels, const ScatterRowsArgs& args, int part, int parts) {
    const Range share = Share(args.rows, 1, part, parts);
    const int32_t* const end = args.ids + args.count;
    const int32_t* id = std::lower_bound(args.ids, end, static_cast<int32_t>(share.begin));
    for (int64_t row = share.begin; row < share.end; ++row) {
        if (id != end && *id == row) {
            CopyRow(kernels, args.x, id++ - args.ids, args.y, row, args.cols);
        } else {
            ClearRow(args.y, row, 0, args.cols);
        }
    }
}

void CopyColumns(const Kernels& kernels, const CopyColumnsArgs& args, int part, int parts) {
    const Range share = Share(args.rows, 1, part, parts);
    const int64_t behind = args.y_begin + args.cols;
    for (int64_t row = share.begin; row < share.end; ++row) {
        ClearRow(args.y, row, 0, args.y_begin);
        ClearRow(args.y, row, behind, args.y_cols - behind);
    }
    kernels.scale({args.x.From(share.begin, args.x_begin), share.end - share.begin, args.cols, 1,
                   args.y.From(share.begin, args.y_begin)},
                  0, 1);
}

int64_t DecodeScratchBytes(const DecodeArgs& args) {
    return args.y.type == Element::kF32 ? 0 : FloatScratchBytes(args.cols);
}

void Decode(const Kernels& kernels, const DecodeArgs& args, int part, int parts) {
    const bool direct = args.y.type == Element::kF32;
    for (int64_t m = 0; m < args.matrices; ++m) {
        if (args.begin != nullptr && args.begin[m] == args.begin[m + 1]) continue;
        const Range share = Share(args.matrix_rows, 1, part, parts);
        const int64_t first = m * args.matrix_rows;
        for (int64_t row = first + share.begin; row < first + share.end; ++row) {
            float* const floats = direct ? args.y.Row<float>(row) : ScratchFloats(args, part);
            DecodeRow(kernels, args.dtype, args.x, row, args.cols, floats);
            if (!direct) CopyRow(kernels, {floats, args.cols}, 0, args.y, row, args.cols);
        }
    }
}

void Fill(const FillArgs& args, int part, int parts) {
    const Range share = Share(args.bytes, 4096, part, parts);
    std::memset(args.y + share.begin, 0, static_cast<size_t>(share.end - share.begin));
}

}  // namespace weft::kernels::dense
