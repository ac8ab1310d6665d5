// Adapters on a product: every level against sums in double; rows without the adapter untouched;
// and a row's bits the same with any other rows and any number of threads.
#include "kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "support/tiny_model.h"
#include "tensor/half.h"

namespace weft::kernels {
namespace {

using support::Formula;

struct Matrix {
    DType dtype;
    int64_t rows, cols;
    std::vector<std::byte> packed;
    std::vector<double> plain;

    Matrix(const std::string& name, DType type, int64_t r, int64_t c)
        : dtype(type), rows(r), cols(c) {
        const auto size = static_cast<size_t>(RowBytes(type, 1));
        std::vector<std::byte> raw(static_cast<size_t>(r * c) * size);
        for (int64_t i = 0; i < r * c; ++i) {
            auto value = static_cast<float>(Formula(name, static_cast<uint32_t>(i)));
            const uint16_t half = F32ToBF16(value);
            if (type == DType::kBF16) value = BF16ToF32(half);
            const void* from = type == DType::kBF16 ? static_cast<const void*>(&half) : &value;
            std::memcpy(raw.data() + static_cast<size_t>(i) * size, from, size);
            plain.push_back(static_cast<double>(value));
        }
        packed.assign(static_cast<size_t>(AdapterBytes(type, r, c)), std::byte{0xff});
        const PackedMatrix matrix = View();
        const auto row_bytes = static_cast<int64_t>(size) * c;
        // In two parts, as a loader may do.
        const int64_t first = r > kStripRows ? kStripRows : r;
        PackAdapter(matrix, 0, first, raw.data(), row_bytes);
        if (first < r)
            PackAdapter(matrix, first, r - first, raw.data() + first * row_bytes, row_bytes);
    }
    PackedMatrix View() const { return {dtype, rows, cols, const_cast<std::byte*>(packed.data())}; }
    double At(int64_t row, int64_t col) const {
        return plain[static_cast<size_t>(row * cols + col)];
    }
};

constexpr int64_t kCols = 200, kOut = 75, kRows = 25, kStride = 48;

enum class Form { kPlain, kWide, kRounded };

// Two adapters of different ranks, and one (number 4) that has no matrices here.
class Adapt : public testing::TestWithParam<CpuLevel> {
  protected:
    struct Result {
        std::vector<float> y;
        std::vector<double> wide;
    };
    static Result Run(DType dtype, Form form, const std::vector<AdaptedRow>& rows, int parts) {
        const Matrix a2("a2", dtype, 5, kCols), b2("b2", dtype, kOut, 5);
        const Matrix a7("a7", dtype, 33, kCols), b7("b7", dtype, kOut, 33);
        const std::vector<AdapterPair> pairs = {{2, a2.View(), b2.View()},
                                                {7, a7.View(), b7.View()}};
        const std::vector<float> x = Noise("x", kRows * kCols);
        Result result{Noise("y", kRows * kOut), {}};
        for (const float y : result.y) result.wide.push_back(static_cast<double>(y) / 3);
        const int64_t chunks = MostAdaptChunks(static_cast<int64_t>(rows.size()));
        std::vector<float> u(static_cast<size_t>(chunks * kStride), NAN);
        std::vector<double> wide_u(u.size(), NAN);
        AdaptDownArgs down{pairs, rows, {}, x.data(), kCols};
        AdaptUpArgs up{pairs, rows, {}, x.data(), kCols};
        down.u_stride = up.u_stride = kStride;
        up.u = down.u = u.data();
        up.wide_u = wide_u.data();
        if (form != Form::kPlain) {
            down.wide_u = wide_u.data();
            down.segment_cols = 32;
            up.wide = result.wide.data();
            up.segment_cols = 32;
        }
        if (form != Form::kWide) up.y = result.y.data();
        up.y_stride = up.cols = kOut;
        up.all_rows = kRows;
        std::vector<double> scratch(static_cast<size_t>(parts * kMostAdaptRows * kStride));
        TakeScratch(up, scratch);
        const Kernels& kernels = KernelsFor(GetParam());
        for (int part = 0; part < parts; ++part) kernels.adapt_down(down, part, parts);
        for (int part = 0; part < parts; ++part) kernels.adapt_up(up, part, parts);
        return result;
    }
    static void TakeScratch(AdaptUpArgs& up, std::vector<double>& scratch) {
        up.scratch = reinterpret_cast<std::byte*>(scratch.data());
        up.scratch_bytes = AdaptUpScratch(kStride);
    }
    static std::vector<float> Noise(const std::string& name, int64_t count) {
        std::vector<float> values;
        for (int64_t i = 0; i < count; ++i) {
            values.push_back(static_cast<float>(Formula(name, static_cast<uint32_t>(i))));
        }
        return values;
    }
    // More rows than those that count as few.
    static std::vector<AdaptedRow> Rows() {
        std::vector<AdaptedRow> rows;
        for (const int32_t row : {1, 3, 4, 5, 6, 9, 13, 14, 15, 16, 17, 18})
            rows.push_back({row, 2});
        rows.push_back({2, 4});
        for (const int32_t row : {0, 7, 12, 19, 20, 21, 22, 23}) rows.push_back({row, 7});
        return rows;
    }
};

// Sums of 200 and then 33 products of numbers below 1: an error of 2^-24 of their size per
// addition.
TEST_P(Adapt, AddsTheProductOnlyToItsRows) {
    const std::vector<float> x = Noise("x", kRows * kCols), y = Noise("y", kRows * kOut);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const Matrix a2("a2", dtype, 5, kCols), b2("b2", dtype, kOut, 5);
        const Matrix a7("a7", dtype, 33, kCols), b7("b7", dtype, kOut, 33);
        for (const Form form : {Form::kPlain, Form::kWide, Form::kRounded}) {
            const Result got = Run(dtype, form, Rows(), 3);
            std::vector<double> expected(y.begin(), y.end());
            if (form != Form::kPlain) {
                for (double& value : expected) value /= 3;
            }
            for (const AdaptedRow& row : Rows()) {
                const Matrix &a = row.adapter == 2 ? a2 : a7, &b = row.adapter == 2 ? b2 : b7;
                for (int64_t r = 0; row.adapter != 4 && r < a.rows; ++r) {
                    double u = 0;
                    for (int64_t c = 0; c < kCols; ++c) {
                        u += static_cast<double>(x[static_cast<size_t>(row.row * kCols + c)]) *
                             a.At(r, c);
                    }
                    for (int64_t n = 0; n < kOut; ++n) {
                        expected[static_cast<size_t>(row.row * kOut + n)] += u * b.At(n, r);
                    }
                }
            }
            for (size_t i = 0; i < expected.size(); ++i) {
                const double value =
                    form == Form::kWide ? got.wide[i] : static_cast<double>(got.y[i]);
                ASSERT_TRUE(std::abs(value - expected[i]) <= 2e-4) << i << " " << value;
            }
            for (int64_t row : {8, 10, 11, 24, 2}) {  // no adapter, or one without matrices here
                for (int64_t n = 0; n < kOut; ++n) {
                    const auto i = static_cast<size_t>(row * kOut + n);
                    if (form == Form::kPlain) {
                        EXPECT_EQ(got.y[i], y[i]);
                    }
                    if (form == Form::kRounded) {
                        EXPECT_EQ(got.y[i], static_cast<float>(static_cast<double>(y[i]) / 3));
                    }
                }
            }
        }
    }
}

TEST_P(Adapt, ARowsBitsDoNotDependOnOtherRows) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const Form form : {Form::kPlain, Form::kWide}) {
            const Result all = Run(dtype, form, Rows(), 1);
            for (const int parts : {2, 5}) {
                const Result shared = Run(dtype, form, Rows(), parts);
                EXPECT_EQ(shared.y, all.y);
                EXPECT_EQ(shared.wide, all.wide);
            }
            for (const AdaptedRow& row : Rows()) {
                const Result alone = Run(dtype, form, {row}, 2);
                for (int64_t n = 0; n < kOut; ++n) {
                    const auto i = static_cast<size_t>(row.row * kOut + n);
                    EXPECT_EQ(alone.y[i], all.y[i]);
                    EXPECT_EQ(alone.wide[i], all.wide[i]);
                }
            }
        }
    }
}

// Adapter 1 scales and shifts, 2 replaces the product and shifts it, 3 does all with A and B.
TEST_P(Adapt, ScalesShiftsAndReplaces) {
    const std::vector<float> x = Noise("x", kRows * kCols), y = Noise("y", kRows * kOut);
    const std::vector<float> gain = Noise("gain", kOut), shift = Noise("shift", kOut);
    const std::vector<AdaptedRow> rows = {{4, 1}, {0, 2}, {7, 2}, {2, 3}, {3, 3}, {12, 3}};
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const Matrix whole("whole", dtype, kOut, kCols), a("a", dtype, 5, kCols);
        const Matrix b("b", dtype, kOut, 5);
        const std::vector<AdapterPair> pairs = {{1, {}, {}, gain.data(), shift.data()},
                                                {2, whole.View(), {}, nullptr, shift.data()},
                                                {3, a.View(), b.View(), gain.data(), shift.data()}};
        for (const bool wide : {false, true}) {
            std::vector<float> got = y, u(kRows * kAdaptChunks * kStride);
            std::vector<double> sums(y.begin(), y.end()), wide_u(u.size());
            AdaptDownArgs down{pairs, rows, {}, x.data(), kCols, wide ? 32 : 0, u.data()};
            AdaptUpArgs up{pairs, rows, {}, x.data(), kCols, wide ? 32 : 0, u.data()};
            if (wide) {
                up.wide_u = down.wide_u = wide_u.data();
                up.wide = sums.data();
            } else {
                up.y = got.data();
            }
            down.u_stride = up.u_stride = kStride;
            up.y_stride = up.cols = kOut;
            std::vector<double> scratch(3 * kMostAdaptRows * kStride);
            TakeScratch(up, scratch);
            const Kernels& kernels = KernelsFor(GetParam());
            for (int part = 0; part < 3; ++part) kernels.adapt_down(down, part, 3);
            for (int part = 0; part < 3; ++part) kernels.adapt_up(up, part, 3);
            for (int64_t i = 0; i < kRows * kOut; ++i) {
                const int64_t row = i / kOut, n = i % kOut;
                double expected = y[static_cast<size_t>(i)];
                const auto is = std::ranges::find(rows, row, &AdaptedRow::row);
                const auto dot = [&](const Matrix& m, int64_t r) {
                    double sum = 0;
                    for (int64_t c = 0; c < kCols; ++c) {
                        sum += static_cast<double>(x[static_cast<size_t>(row * kCols + c)]) *
                               m.At(r, c);
                    }
                    return sum;
                };
                if (is != rows.end()) {
                    const auto column = static_cast<size_t>(n);
                    if (is->adapter != 2) expected *= static_cast<double>(gain[column]);
                    if (is->adapter == 2) expected = dot(whole, n);
                    for (int64_t r = 0; is->adapter == 3 && r < 5; ++r) {
                        expected += dot(a, r) * b.At(n, r);
                    }
                    expected += static_cast<double>(shift[column]);
                }
                const auto at = static_cast<size_t>(i);
                const double value = wide ? sums[at] : static_cast<double>(got[at]);
                ASSERT_TRUE(std::abs(value - expected) <= 2e-4) << row << " " << n;
            }
        }
    }
}

// Three experts, of which this rank has the last two. Each token chose two.
TEST_P(Adapt, OfExpertsUsesTheRowsOfThePlan) {
    constexpr int64_t kUsed = 2, kTokens = 3, kExperts = 2;
    const std::vector<int32_t> ids = {2, 1, 0, 2, 1, 2};
    const std::vector<int32_t> place = {2, 0, -1, 3, 1, 4};  // sorted by expert, then by slot
    const std::vector<float> weights = Noise("weights", kTokens * kUsed);
    const std::vector<AdaptedRow> rows = {{0, 1}, {1, 1}};
    const Matrix a1("a1", DType::kF32, 5, kCols), a2("a2", DType::kF32, 5, kCols);
    const Matrix b1("b1", DType::kF32, kOut, 5), b2("b2", DType::kF32, kOut, 5);
    const auto both = [](const Matrix& first, const Matrix& second) {
        std::vector<std::byte> bytes = first.packed;
        bytes.insert(bytes.end(), second.packed.begin(), second.packed.end());
        return bytes;
    };
    std::vector<std::byte> a = both(a1, a2), b = both(b1, b2);
    AdapterPair pair{1, a1.View(), b1.View()};
    pair.a.data = a.data();
    pair.b.data = b.data();
    pair.a_bytes = static_cast<int64_t>(a1.packed.size());
    pair.b_bytes = static_cast<int64_t>(b1.packed.size());
    const std::vector<AdapterPair> pairs = {pair};
    for (const bool sums : {false, true}) {
        const int64_t in = sums ? 5 : kTokens, out = sums ? kTokens : 5;
        const std::vector<float> x = Noise("x", in * kCols), y = Noise("y", out * kOut);
        std::vector<float> u(kTokens * kUsed * kAdaptChunks * kStride), got = y;
        std::vector<double> wide_u(u.size()), wide(y.begin(), y.end());
        AdaptedSlots slots{ids.data(), place.data(), kUsed,
                           1,          !sums,        sums ? weights.data() : nullptr};
        AdaptDownArgs down{pairs, rows, slots, x.data(), kCols, sums ? 32 : 0, u.data()};
        AdaptUpArgs up{pairs, rows, slots, x.data(), kCols, sums ? 32 : 0, u.data()};
        if (sums) {
            up.wide_u = down.wide_u = wide_u.data();
            up.wide = wide.data();
        } else {
            up.y = got.data();
        }
        down.u_stride = up.u_stride = kStride;
        up.y_stride = up.cols = kOut;
        std::vector<double> scratch(2 * kMostAdaptRows * kStride);
        TakeScratch(up, scratch);
        for (int part = 0; part < 2; ++part) KernelsFor(GetParam()).adapt_down(down, part, 2);
        for (int part = 0; part < 2; ++part) KernelsFor(GetParam()).adapt_up(up, part, 2);
        std::vector<double> expected(y.begin(), y.end());
        for (int64_t slot = 0; slot < 2 * kUsed; ++slot) {  // of tokens 0 and 1
            const int64_t at = place[static_cast<size_t>(slot)], token = slot / kUsed;
            if (at < 0) continue;
            const int32_t expert = ids[static_cast<size_t>(slot)] - 1;
            ASSERT_LT(expert, kExperts);
            const Matrix &down_matrix = expert == 0 ? a1 : a2, &up_matrix = expert == 0 ? b1 : b2;
            const int64_t from = sums ? at : token, to = sums ? token : at;
            const double weight =
                sums ? static_cast<double>(weights[static_cast<size_t>(slot)]) : 1.0;
            for (int64_t r = 0; r < 5; ++r) {
                double dot = 0;
                for (int64_t c = 0; c < kCols; ++c) {
                    dot += static_cast<double>(x[static_cast<size_t>(from * kCols + c)]) *
                           down_matrix.At(r, c);
                }
                for (int64_t n = 0; n < kOut; ++n) {
                    expected[static_cast<size_t>(to * kOut + n)] +=
                        weight * dot * up_matrix.At(n, r);
                }
            }
        }
        for (size_t i = 0; i < expected.size(); ++i) {
            const double value = sums ? wide[i] : static_cast<double>(got[i]);
            ASSERT_TRUE(std::abs(value - expected[i]) <= 2e-4) << sums << " " << i;
        }
    }
}

// One row, as in decoding: the parts divide its columns.
TEST_P(Adapt, PartsShareTheColumnsOfOneRow) {
    if (GetParam() == CpuLevel::kReference) return;  // its parts share rows only
    const Matrix a("a", DType::kF32, 16, kCols);
    const std::vector<float> x = Noise("x", kCols);
    const std::vector<AdapterPair> pairs = {{1, a.View(), a.View()}};
    const std::vector<AdaptedRow> rows = {{0, 1}};
    for (int part = 0; part < 4; ++part) {
        std::vector<float> u(16 * kAdaptChunks, NAN);
        AdaptDownArgs down{pairs, rows, {}, x.data(), kCols, 0, u.data()};
        down.u_stride = 16;
        KernelsFor(GetParam()).adapt_down(down, part, 4);
        const auto written =
            std::ranges::count_if(u, [](float value) { return !std::isnan(value); });
        EXPECT_EQ(written, 16 * kAdaptChunks / 4) << part;
    }
}

// A matrix that is cut by columns: the parts add up to the whole, except for float64's rounding.
TEST_P(Adapt, CutsBetweenSegmentsChangeNoBits) {
    const Matrix whole("a", DType::kBF16, 16, kCols);
    const std::vector<float> x = Noise("x", kCols);
    const auto down = [&](int64_t begin, int64_t count) {
        std::vector<std::byte> packed(static_cast<size_t>(AdapterBytes(DType::kBF16, 16, count)));
        std::vector<uint16_t> raw;
        for (int64_t r = 0; r < 16; ++r) {
            for (int64_t c = begin; c < begin + count; ++c) {
                raw.push_back(F32ToBF16(static_cast<float>(whole.At(r, c))));
            }
        }
        const PackedMatrix a{DType::kBF16, 16, count, packed.data()};
        PackAdapter(a, 0, 16, reinterpret_cast<const std::byte*>(raw.data()), count * 2);
        const std::vector<AdapterPair> pairs = {{1, a, a}};
        const std::vector<AdaptedRow> rows = {{0, 1}};
        std::vector<double> u(16 * kAdaptChunks);
        AdaptDownArgs args{pairs, rows, {}, x.data() + begin, count};
        args.segment_cols = 32;
        args.wide_u = u.data();
        args.u_stride = 16;
        KernelsFor(GetParam()).adapt_down(args, 0, 1);
        for (size_t i = 16; i < u.size(); ++i) u[i % 16] += u[i];
        return u;
    };
    const auto all = down(0, kCols), left = down(0, 96), right = down(96, kCols - 96);
    for (size_t r = 0; r < 16; ++r) {
        EXPECT_TRUE(std::abs(left[r] + right[r] - all[r]) <= 1e-14 * (1 + std::abs(all[r])));
    }
}

INSTANTIATE_TEST_SUITE_P(Levels, Adapt, testing::ValuesIn(UsableCpuLevels(DetectCpu())),
                         [](const auto& level) { return std::string(CpuLevelName(level.param)); });

}  // namespace
}  // namespace weft::kernels
