// The kernels of dense/lookup.h on every level against element-wise loops: odd sizes, ids outside a
// table, repeated tokens, all element types, and the same bits for any number of parts.
#include "kernels/dense/lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "support/typed_matrix.h"
#include "tensor/quant.h"

namespace weft::kernels::dense {
namespace {

using test::ExpectSameInParts, test::ForLevelsAndSeeds, test::Random, test::Scratch, test::Typed,
    test::Types;

std::vector<int32_t> SomeIds(Random& random, int64_t count, int64_t least, int64_t most) {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (int32_t& id : ids) id = static_cast<int32_t>(random.Int(least, most));
    return ids;
}
std::vector<int32_t> RowsByToken(const std::vector<int32_t>& tokens) {
    std::vector<int32_t> order(tokens.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int32_t i) { return tokens[static_cast<size_t>(i)]; });
    return order;
}
// Some rows of a block type, and what they decode to.
struct Blocks {
    Blocks(Random& random, DType type, int64_t rows, int64_t columns)
        : dtype(type), cols(columns), floats(static_cast<size_t>(rows * columns)) {
        const auto row_bytes = static_cast<size_t>(RowBytes(type, cols));
        bytes.resize(static_cast<size_t>(rows) * row_bytes);
        for (int64_t row = 0; row < rows; ++row) {
            const std::span packed(bytes.data() + static_cast<size_t>(row) * row_bytes, row_bytes);
            QuantizeRow(type, random.Normals(cols), packed);
            DequantizeRow(type, packed,
                          {&floats[static_cast<size_t>(row * cols)], static_cast<size_t>(cols)});
        }
    }
    float At(int64_t row, int64_t col) const {
        return floats[static_cast<size_t>(row * cols + col)];
    }
    DType dtype;
    int64_t cols;
    std::vector<std::byte> bytes;
    std::vector<float> floats;
};
DType SomeBlockType(Random& random) {
    return random.Pick({DType::kQ4_0, DType::kQ8_0, DType::kQ5_1});
}

TEST(DenseLookup, RowsOfAPlainTable) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        const int64_t rows = random.Int(1, 20), cols = random.Int(1, 70), count = random.Int(0, 9);
        const int64_t first = random.Pick({int64_t{0}, int64_t{100}});
        const Types types(random);
        Typed table(random, rows, cols, types.Any()), y(random, count, cols, types.Any());
        const auto ids = SomeIds(random, count, first - 4, first + rows + 3);
        const LookupArgs args{.table = table.View(),
                              .table_rows = rows,
                              .first_row = first,
                              .ids = ids.data(),
                              .count = count,
                              .cols = cols,
                              .y = y.View()};
        ExpectSameInParts([&](int part, int parts) { Lookup(kernels, args, part, parts); },
                          [&] { y.Poison(); }, [&] { return y.Bits(); });
        for (int64_t i = 0; i < count; ++i) {
            const int64_t row = ids[static_cast<size_t>(i)] - first;
            for (int64_t c = 0; c < cols; ++c) {
                const float held = row < 0 || row >= rows ? 0 : table.At(row, c);
                ASSERT_EQ(y.At(i, c), Stored(y.type, held)) << i << ", " << c;
            }
        }
        y.ExpectGaps();
    });
}

TEST(DenseLookup, RowsOfABlockType) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        const int64_t rows = random.Int(1, 9), cols = 32 * random.Int(1, 4);
        const Blocks table(random, SomeBlockType(random), rows, cols);
        const auto ids = SomeIds(random, 7, -2, rows + 1);
        Typed y(random, 7, cols, Element::kF32);
        const LookupArgs args{.table = {},
                              .blocks = table.bytes.data(),
                              .block_type = table.dtype,
                              .table_rows = rows,
                              .ids = ids.data(),
                              .count = 7,
                              .cols = cols,
                              .y = y.View()};
        ExpectSameInParts([&](int part, int parts) { Lookup(kernels, args, part, parts); },
                          [&] { y.Poison(); }, [&] { return y.Bits(); });
        for (int64_t i = 0; i < 7; ++i) {
            const int64_t row = ids[static_cast<size_t>(i)];
            for (int64_t c = 0; c < cols; ++c) {
                ASSERT_EQ(y.At(i, c), row < 0 || row >= rows ? 0 : table.At(row, c));
            }
        }
        y.ExpectGaps();
    });
}

// A few tokens, so that most repeat; each row of the table is rounded once.
TEST(DenseLookup, EmbeddingGradAddsRowsOfATokenBeforeRounding) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        const int64_t rows = random.Int(1, 6), cols = random.Int(1, 70), count = random.Int(0, 30);
        const int64_t first = random.Pick({int64_t{0}, int64_t{50}});
        const Types types(random);
        Typed dy(random, count, cols, types.Any());
        const Typed before(random, rows, cols, types.Any());
        Typed table = before;
        const auto tokens = SomeIds(random, count, first - 2, first + rows + 1);
        const auto order = RowsByToken(tokens);
        EmbeddingGradArgs args{.dy = dy.View(),
                               .tokens = tokens.data(),
                               .order = order.data(),
                               .count = count,
                               .cols = cols,
                               .table_rows = rows,
                               .first_row = first,
                               .table = table.View()};
        Scratch scratch(EmbeddingGradScratchBytes(args));
        args.scratch = scratch.data();
        args.scratch_bytes = scratch.bytes;
        ExpectSameInParts([&](int part, int parts) { EmbeddingGrad(kernels, args, part, parts); },
                          [&] {
                              table.floats = before.floats;
                              table.halves = before.halves;
                          },
                          [&] { return table.Bits(); });
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t c = 0; c < cols; ++c) {
                float sum = 0;
                for (int64_t i = 0; i < count; ++i) {
                    if (tokens[static_cast<size_t>(i)] - first == row) sum += dy.At(i, c);
                }
                ASSERT_EQ(table.At(row, c), Stored(table.type, before.At(row, c) + sum));
            }
        }
        table.ExpectGaps();
    });
}

TEST(DenseLookup, ScatterRowsClearsOtherRows) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        const int64_t rows = random.Int(1, 20), cols = random.Int(1, 70);
        std::vector<int32_t> ids;
        for (int32_t row = 0; row < rows; ++row) {
            if (random.Int(0, 2) == 0) ids.push_back(row);
        }
        const auto count = static_cast<int64_t>(ids.size());
        const Types types(random);
        Typed x(random, count, cols, types.Any()), y(random, rows, cols, types.Any());
        const ScatterRowsArgs args{.x = x.View(),
                                   .ids = ids.data(),
                                   .count = count,
                                   .rows = rows,
                                   .cols = cols,
                                   .y = y.View()};
        ExpectSameInParts([&](int part, int parts) { ScatterRows(kernels, args, part, parts); },
                          [&] { y.Poison(); }, [&] { return y.Bits(); });
        for (int64_t row = 0; row < rows; ++row) {
            const auto found = std::ranges::find(ids, row) - ids.begin();
            for (int64_t c = 0; c < cols; ++c) {
                const float selected = found == count ? 0 : x.At(found, c);
                ASSERT_EQ(y.At(row, c), Stored(y.type, selected)) << row << ", " << c;
            }
        }
        y.ExpectGaps();
    });
}

TEST(DenseLookup, CopyColumnsSlicesAndPads) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        const int64_t rows = random.Int(0, 9), cols = random.Int(1, 50);
        const int64_t x_begin = random.Int(0, 20), y_begin = random.Int(0, 20);
        const Types types(random);
        Typed x(random, rows, x_begin + cols + random.Int(0, 5), types.Any());
        Typed y(random, rows, y_begin + cols + random.Int(0, 20), types.Any());
        const CopyColumnsArgs args{.x = x.View(),
                                   .x_begin = x_begin,
                                   .y_begin = y_begin,
                                   .rows = rows,
                                   .cols = cols,
                                   .y_cols = y.cols,
                                   .y = y.View()};
        ExpectSameInParts([&](int part, int parts) { CopyColumns(kernels, args, part, parts); },
                          [&] { y.Poison(); }, [&] { return y.Bits(); });
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t c = 0; c < y.cols; ++c) {
                const bool copied = c >= y_begin && c < y_begin + cols;
                const float expected = copied ? x.At(row, x_begin + c - y_begin) : 0;
                ASSERT_EQ(y.At(row, c), Stored(y.type, expected)) << row << ", " << c;
            }
        }
        y.ExpectGaps();
    });
}

// Matrices that no row chose do not change.
TEST(DenseLookup, DecodeSkipsMatricesWithoutRows) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        const int64_t matrices = random.Int(1, 4), rows = random.Int(1, 7);
        const int64_t cols = 32 * random.Int(1, 4);
        const bool all = random.Int(0, 1) == 0;
        std::vector<int32_t> begin = {0};
        for (int64_t m = 0; m < matrices; ++m) {
            begin.push_back(begin.back() + static_cast<int32_t>(random.Int(0, 2)));
        }
        const Blocks x(random, SomeBlockType(random), matrices * rows, cols);
        Typed y(random, matrices * rows, cols, Types(random).Any());
        DecodeArgs args{.dtype = x.dtype,
                        .x = x.bytes.data(),
                        .matrices = matrices,
                        .matrix_rows = rows,
                        .cols = cols,
                        .begin = all ? nullptr : begin.data(),
                        .y = y.View()};
        Scratch scratch(DecodeScratchBytes(args));
        args.scratch = scratch.data();
        args.scratch_bytes = scratch.bytes;
        ExpectSameInParts([&](int part, int parts) { Decode(kernels, args, part, parts); },
                          [&] { y.Poison(); }, [&] { return y.Bits(); });
        for (int64_t row = 0; row < matrices * rows; ++row) {
            const auto m = static_cast<size_t>(row / rows);
            const bool chosen = all || begin[m] < begin[m + 1];
            for (int64_t c = 0; c < cols; ++c) {
                if (!chosen) {
                    ASSERT_TRUE(std::isnan(y.At(row, c))) << row << ", " << c;
                } else {
                    ASSERT_EQ(y.At(row, c), Stored(y.type, x.At(row, c))) << row << ", " << c;
                }
            }
        }
        y.ExpectGaps();
    });
}

TEST(DenseLookup, FillChangesOnlyItsBytes) {
    for (const int64_t bytes : {0, 1, 4095, 4096, 4097, 50'001}) {
        std::vector<std::byte> y;
        ExpectSameInParts(
            [&](int part, int parts) {
                Fill({y.data(), bytes}, part, parts);
            },
            [&] { y.assign(static_cast<size_t>(bytes) + 8, std::byte{0xff}); }, [&] { return y; });
        const auto zeros = std::ranges::count(y, std::byte{0});
        EXPECT_EQ(zeros, bytes);
        EXPECT_EQ(y[static_cast<size_t>(bytes)], std::byte{0xff});
    }
}

}  // namespace
}  // namespace weft::kernels::dense
