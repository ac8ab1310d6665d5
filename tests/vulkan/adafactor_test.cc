// Adafactor on a GPU: its four ops, one after another, against float64.
//
// Bounds: u = 2^-24. A sum of squares is off by one rounding for each addition of its longest
// chain, which has fewer than 400 here; the divisions and roots that follow add about 5u.
#include "vulkan/train_case.h"

namespace weft::backend::on_gpu {
namespace {

using namespace test;
using program::FactoredRun;
using program::FactoredTensor;

struct FactoredCase {
    DType gradient = DType::kF32, copy = DType::kBF16;
    bool has_copy = true, scales = false, relative = false;
    int64_t number = 1, skip = 0;
};
const FactoredCase kFactored[] = {
    {},
    {DType::kBF16, DType::kBF16, true, true, false, 7, 0},
    {DType::kF16, DType::kF32, false, true, true, 40, 1},
};

// The tensors: a matrix in two runs, cut in the middle of a row; some columns of another matrix; a
// stack of matrices, from the middle of one to the middle of another; and a vector.
struct Tensors {
    Tensors() {
        const auto add = [&](int64_t rows, int64_t cols, int64_t matrices) {
            FactoredTensor f{rows, cols, matrices};
            f.number = static_cast<int64_t>(all.size());
            f.rows_at = numbers;
            f.cols_at = numbers + rows;
            numbers = f.cols_at + cols * matrices;
            all.push_back(f);
        };
        add(150, 37, 1);
        add(9, 300, 1);
        add(12, 20, 4);
        add(0, 333, 1);
        const auto part = [&](const FactoredTensor& f, std::array<int64_t, 5> block, bool decays) {
            const auto [row_begin, col_begin, col_count, begin, end] = block;
            runs.push_back({f, row_begin, col_begin, col_count, {begin, end}, own, decays});
            own += end - begin + 3;  // elements between them that belong to no run
        };
        part(all[0], {0, 0, 37, 0, 2000}, true);
        part(all[0], {0, 0, 37, 2000, 150 * 37}, true);
        part(all[1], {2, 100, 110, 0, 7 * 110}, false);
        part(all[2], {1, 0, 20, 33, 9 * 20 - 5}, true);
        part(all[3], {0, 0, 333, 0, 333}, false);
    }
    std::vector<FactoredTensor> all;
    std::vector<FactoredRun> runs;
    int64_t numbers = 0, own = 0;
};

// f(element of the own part, its row number or -1, its column number)
template <typename F>
void ForElementsOf(const FactoredRun& run, const F& f) {
    for (int64_t i = run.range.begin; i < run.range.end; ++i) {
        const int64_t row = run.row_begin + i / run.col_count;
        const int64_t col = run.tensor.ColsOf(row) + run.col_begin + i % run.col_count;
        f(static_cast<size_t>(run.own + i - run.range.begin),
          run.tensor.rows == 0 ? -1 : run.tensor.rows_at + row, static_cast<size_t>(col));
    }
}

// The values and the expected numbers, op by op, each computed from the device's previous result.
class Adafactor {
  public:
    Adafactor(const std::shared_ptr<gpu::Device>& device, const FactoredCase& of, Random& random)
        : c_(of), e_(device, TrainShape(1), of.skip) {
        gradient_ = RoundedTo(c_.gradient, random.Normals(t_.own, 0.3f));
        weights_ = random.Normals(t_.own);
        for (const float x : random.Normals(t_.numbers)) moments_.push_back(x * x + 0.01f);
        e_.SetUpdate({c_.number, kRate, kScale});
        const auto tensors = static_cast<int64_t>(t_.all.size());
        in_gradient_ = e_.Place({t_.own}, c_.gradient, gradient_);
        in_weights_ = e_.Place({t_.own}, DType::kF32, weights_);
        in_copy_ = e_.Place({t_.own}, c_.copy, std::vector<float>(weights_.size(), 5.0f));
        in_moments_ = e_.Place({t_.numbers}, DType::kF32, moments_);
        in_inverse_ = e_.Place({t_.numbers}, DType::kF32);
        const auto zeros = [&](int64_t n) { return std::vector<float>(static_cast<size_t>(n)); };
        in_sums_ = e_.Place({t_.numbers + tensors}, DType::kF32, zeros(t_.numbers + tensors));
        in_squares_ = e_.Place({tensors}, DType::kF32, zeros(tensors));
    }

    void Sums() {
        program::AdafactorSums a{t_.runs, t_.numbers, c_.scales};
        EXPECT_DONE(e_.Do(a, {in_gradient_, in_weights_, in_sums_}, {in_sums_}));
        Doubles right(static_cast<size_t>(t_.numbers) + t_.all.size());
        for (const FactoredRun& run : t_.runs) {
            ForElementsOf(run, [&](size_t i, int64_t row, size_t col) {
                const double g = kScale * gradient_[i];
                if (row >= 0) right[static_cast<size_t>(row)] += g * g;
                right[col] += g * g;
                const auto size = static_cast<size_t>(t_.numbers + run.tensor.number);
                if (c_.scales) right[size] += double{weights_[i]} * weights_[i];
            });
        }
        ExpectNear(
            e_.Read(in_sums_), right, DType::kF32, [&](size_t i) { return 400 * kUlp * right[i]; },
            "sums");
    }

    void Moments() {
        program::AdafactorMoments a{t_.all};
        EXPECT_DONE(e_.Do(a, {in_sums_, in_moments_, in_inverse_}, {in_moments_, in_inverse_}));
        const auto sums = e_.Read(in_sums_), inverse = e_.Read(in_inverse_);
        const double part = std::pow(static_cast<double>(c_.number), a.decay_rate);
        Doubles right(moments_.size()), right_inverse(moments_.size());
        for (const FactoredTensor& f : t_.all) {
            const int64_t cols = f.cols * f.matrices, of_one = f.rows_of_one();
            const auto update = [&](int64_t at, int64_t count) {
                const auto i = static_cast<size_t>(at);
                const double mean = sums[i] / static_cast<double>(count) + a.eps_square;
                right[i] = (1 - part) * moments_[i] + part * mean;
                return right[i];
            };
            Doubles means(static_cast<size_t>(f.matrices));
            for (int64_t i = 0; i < f.rows; ++i) {
                means[static_cast<size_t>(i / of_one)] +=
                    update(f.rows_at + i, f.cols) / static_cast<double>(of_one);
            }
            for (int64_t i = 0; i < f.rows; ++i) {
                const auto at = static_cast<size_t>(f.rows_at + i);
                right_inverse[at] =
                    1 / std::sqrt(right[at] / means[static_cast<size_t>(i / of_one)]);
            }
            for (int64_t i = 0; i < cols; ++i) {
                right_inverse[static_cast<size_t>(f.cols_at + i)] =
                    1 / std::sqrt(update(f.cols_at + i, of_one));
            }
        }
        ExpectNear(
            e_.Read(in_moments_), right, DType::kF32,
            [&](size_t i) { return 20 * kUlp * right[i]; }, "moments");
        ExpectNear(
            inverse, right_inverse, DType::kF32,
            [&](size_t i) { return 200 * kUlp * right_inverse[i]; }, "inverse");
    }

    void Sizes() {
        const std::vector<ValueId> inputs = {in_gradient_, in_inverse_, in_squares_};
        EXPECT_DONE(e_.Do(program::AdafactorSizes{t_.runs}, inputs, {in_squares_}));
        Doubles right(t_.all.size());
        const auto inverse = e_.Read(in_inverse_);
        for (const FactoredRun& run : t_.runs) {
            ForElementsOf(run, [&](size_t i, int64_t row, size_t col) {
                const double by_row = row < 0 ? 1.0 : double{inverse[static_cast<size_t>(row)]};
                const double u = kScale * gradient_[i] * inverse[col] * by_row;
                right[static_cast<size_t>(run.tensor.number)] += u * u;
            });
        }
        ExpectNear(
            e_.Read(in_squares_), right, DType::kF32,
            [&](size_t i) { return 400 * kUlp * right[i]; }, "squares");
    }

    void Update() {
        program::AdafactorUpdate a{t_.runs, t_.numbers};
        a.decay = 0.1;
        a.scale_parameter = c_.scales;
        a.relative_step = c_.relative;
        a.clip_threshold = 0.8;
        std::vector<ValueId> inputs = {in_gradient_, in_inverse_, in_sums_, in_squares_,
                                       in_weights_};
        if (c_.has_copy) inputs.push_back(in_copy_);
        EXPECT_DONE(e_.Do(a, inputs, {inputs.begin() + 4, inputs.end()}));
        const auto p = e_.Read(in_weights_), copy = e_.Read(in_copy_);
        const auto inverse = e_.Read(in_inverse_), sums = e_.Read(in_sums_);
        const auto squares = e_.Read(in_squares_);
        Doubles right(weights_.begin(), weights_.end()), error(right.size());
        for (const FactoredRun& run : t_.runs) {
            const auto number = static_cast<size_t>(run.tensor.number);
            const double count = run.tensor.elements();
            double whole = kRate;
            if (c_.relative) whole = std::min(1e-2, 1 / std::sqrt(double(c_.number)));
            const double of_weights = sums[static_cast<size_t>(t_.numbers) + number] / count;
            if (c_.scales) whole *= std::max(a.eps_scale, std::sqrt(of_weights));
            const double size = std::sqrt(squares[number] / count);
            const double rate = whole / std::max(1.0, size / a.clip_threshold);
            const double kept = 1 - (run.decays ? a.decay : 0) * whole;
            ForElementsOf(run, [&](size_t i, int64_t row, size_t col) {
                const double by_row = row < 0 ? 1.0 : double{inverse[static_cast<size_t>(row)]};
                const double change = kScale * gradient_[i] * inverse[col] * by_row * rate;
                right[i] = weights_[i] * kept - change;
                error[i] = (4 * std::fabs(weights_[i]) + 80 * std::fabs(change)) * kUlp;
            });
        }
        ExpectNear(
            p, right, DType::kF32, [&](size_t i) { return error[i]; }, "weights");
        for (size_t i = 0; i < p.size(); ++i) {
            const bool copied = error[i] > 0 && c_.has_copy;
            ASSERT_EQ(copy[i], copied ? RoundedTo(c_.copy, p[i]) : 5.0f) << i;
        }
    }

  private:
    static constexpr double kRate = 0.01, kScale = 0.25;
    const FactoredCase& c_;
    TrainEmitter e_;
    const Tensors t_;
    std::vector<float> gradient_, weights_, moments_;
    ValueId in_gradient_, in_weights_, in_copy_, in_moments_, in_inverse_, in_sums_, in_squares_;
};

TEST(VulkanUpdate, AdafactorStepByStep) {
    WEFT_VULKAN(device);
    Random random(51);
    for (const FactoredCase& c : kFactored) {
        Adafactor adafactor(device, c, random);
        adafactor.Sums();
        adafactor.Moments();
        adafactor.Sizes();
        adafactor.Update();
    }
}

TEST(VulkanUpdate, AdafactorRefusesSumsInFloat64) {
    WEFT_VULKAN(device);
    TrainEmitter e(device, TrainShape(1));
    const ValueId x = e.Place({8}, DType::kF32), wide = e.AddValues({8}, DType::kF64);
    EXPECT_FALSE(e.Do(program::AdafactorSums{}, {x, x, wide}, {wide}).ok());
    EXPECT_FALSE(e.Do(program::AdafactorSizes{}, {x, x, wide}, {wide}).ok());
}

}  // namespace
}  // namespace weft::backend::on_gpu
