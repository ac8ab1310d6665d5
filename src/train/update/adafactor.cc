// Adafactor (Shazeer and Stern 2018), as transformers.optimization.Adafactor computes it, without a
// first moment: the second moments of a matrix are the product of one number a row and one a
// column, so that they take rows + cols numbers. A vector has one for each element; of a tensor
// that is several matrices (experts) each has its own.
//
// A matrix may lie on many ranks, cut by rows, columns or anywhere. Each adds the squares of what
// it alone has into the sums of all tensors' rows and columns; these are summed over all ranks, so
// that every rank keeps the same moments, of the whole model. Then the same for the squares of the
// updates, one number a tensor, which are clipped by it.
#include <algorithm>
#include <cmath>
#include <map>

#include "tensor/half.h"
#include "train/update/element_rule.h"

namespace weft::train {
namespace {

constexpr const char* kRowsKind = "adafactor_rows";
constexpr const char* kColsKind = "adafactor_cols";

// Of a tensor, places in the arrays of all.
struct Factors {
    int64_t rows = 0, cols = 0;  // a vector: 0 rows; of several matrices: of all, of one
    int64_t matrices = 1;
    size_t rows_at = 0, cols_at = 0, number = 0;

    int64_t rows_of_one() const { return std::max(rows / matrices, int64_t{1}); }
    // The columns' places of the matrix that a row is in.
    size_t ColsOf(int64_t row) const {
        return cols_at + static_cast<size_t>(rows == 0 ? 0 : row / rows_of_one() * cols);
    }
};

// A piece, element by element: f(row, col, gradient), each row's columns ascending.
template <typename F>
void ForRowsOf(const Region& region, int64_t row_begin, int64_t row_end, const F& f) {
    for (int64_t row = row_begin; row < row_end; ++row) {
        const int64_t first = std::max(region.begin - row * region.col_count, int64_t{0});
        const int64_t last = std::min(region.end - row * region.col_count, region.col_count);
        if (first < last) f(row, first, last);
    }
}

// Rows of the block that the region touches.
kernels::Range RowsOf(const Region& region) {
    return {region.begin / region.col_count,
            (region.end + region.col_count - 1) / region.col_count};
}

class Adafactor final : public UpdateRule {
  public:
    Adafactor(const UpdateOptions& options, const UpdateContext& context)
        : options_(options), context_(context) {}

    // (Which tensors other stages have is not known before Start: all of the model's are counted.)
    uint64_t size_bytes() const override {
        int64_t numbers = 0;
        for (const model_files::TensorInfo& tensor : context_.source.tensors()) {
            numbers += tensor.rows + tensor.cols * tensor.dims[2] * tensor.dims[3];
        }
        return static_cast<uint64_t>(numbers) * (2 * sizeof(float) + sizeof(double));
    }

    void Start(coll::Comm* world) override {
        world_ = world;
        size_t numbers = 0;
        for (const std::string& name : context_.state.trained_tensors()) {
            const model_files::TensorInfo& tensor = *context_.source.FindTensor(name);
            const bool matrix = tensor.dim_count > 1;
            Factors factors;
            factors.rows = matrix ? tensor.rows : 0;
            factors.cols = matrix ? tensor.cols : tensor.rows * tensor.cols;
            factors.matrices = tensor.dims[2] * tensor.dims[3];
            factors.rows_at = numbers;
            factors.number = factors_.size();
            factors.cols_at = numbers + static_cast<size_t>(factors.rows);
            numbers = factors.cols_at + static_cast<size_t>(factors.cols * factors.matrices);
            factors_.emplace(name, factors);
        }
        moments_.assign(numbers, 0.0f);
        inverse_.assign(numbers, 0.0f);
        // Behind the sums of rows and columns: the squares of each tensor's weights.
        sums_.resize(numbers + factors_.size());
        rates_.resize(factors_.size());
    }

    Status Prepare(const UpdateStep& step) override {
        std::ranges::fill(sums_, 0.0);
        for (OwnPart& part : context_.state.parts()) AddSquares(part, step);
        WEFT_TRY(SumOver(sums_, step));
        UpdateMoments(step);
        std::vector<double> squares(factors_.size());
        for (OwnPart& part : context_.state.parts()) AddUpdates(part, step, squares);
        WEFT_TRY(SumOver(squares, step));
        for (const auto& [name, f] : factors_) {
            const double elements = ElementsOf(f);
            const double size = std::sqrt(squares[f.number] / elements);
            rates_[f.number] = RateOf(f, step) / std::max(1.0, size / options_.clip_threshold);
        }
        return {};
    }

    void UpdatePart(size_t index, const UpdateStep& step) override;
    std::vector<Array> Arrays(const std::set<std::string, std::less<>>& tensors) const override;
    void VisitKeptPieces(Extent extent, const VisitKept& visit) override;

  private:
    static double ElementsOf(const Factors& f) {
        return static_cast<double>(std::max(f.rows, int64_t{1}) * f.cols);
    }
    // The rate before clipping.
    double RateOf(const Factors& f, const UpdateStep& step) const {
        double rate = step.rate;
        if (options_.relative_step) {
            rate = std::min(1e-2, 1 / std::sqrt(static_cast<double>(step.number)));
        }
        if (!options_.scale_parameter) return rate;
        const double squares = sums_[moments_.size() + f.number];
        return rate * std::max(options_.eps_scale, std::sqrt(squares / ElementsOf(f)));
    }
    Status SumOver(std::span<double> sums, const UpdateStep& step) const {
        if (world_ == nullptr) return {};
        net::OpTag tag;
        tag.op = "adafactor";
        tag.step = step.number;
        return world_->AllReduce(sums, tag);
    }
    // Calls f(get) with get(i), the piece's gradient i, as floats.
    template <typename F>
    static void WithGradients(const PieceView& view, double scale, const F& f) {
        const auto factor = static_cast<float>(scale);
        if (view.gradient_type == kernels::dense::Element::kF32) {
            const auto* g = reinterpret_cast<const float*>(view.gradients);
            f([g, factor](int64_t i) { return factor * g[i]; });
        } else {
            const auto* g = reinterpret_cast<const uint16_t*>(view.gradients);
            if (view.gradient_type == kernels::dense::Element::kF16) {
                f([g, factor](int64_t i) { return factor * F16ToF32(g[i]); });
            } else {
                f([g, factor](int64_t i) { return factor * BF16ToF32(g[i]); });
            }
        }
    }
    const Factors& FactorsOf(const MemberPiece& piece) const {
        return factors_.at(piece.tensor());
    }
    void AddSquares(OwnPart& part, const UpdateStep& step);
    void AddUpdates(OwnPart& part, const UpdateStep& step, std::vector<double>& squares);
    void UpdateMoments(const UpdateStep& step);
    float InverseRow(const Factors& f, int64_t row) const {
        return f.rows == 0 ? 1.0f : inverse_[f.rows_at + static_cast<size_t>(row)];
    }

    // Of the region's row, from its first column on.
    const float* InverseCols(const Factors& f, const Region& r, int64_t row) const {
        return inverse_.data() + f.ColsOf(r.row_begin + row) + r.col_begin;
    }

    const UpdateOptions options_;
    const UpdateContext context_;
    coll::Comm* world_ = nullptr;
    std::map<std::string, Factors, std::less<>> factors_;
    std::vector<float> moments_, inverse_;  // means of squares; what a gradient is multiplied by
    std::vector<double> sums_, rates_;      // rates_: by tensor, of this update
};

// Threads share out rows for the sums of rows, and columns for those of columns: so no sum's order
// depends on their number.
void Adafactor::AddSquares(OwnPart& part, const UpdateStep& step) {
    context_.training.InParts([&](int thread, int threads) {
        VisitPieces(part, Extent::kSole, [&](const MemberPiece& piece) {
            const Factors& f = FactorsOf(piece);
            const PieceView view = ViewOf(context_.state, part, piece);
            const Region& r = piece.region;
            const kernels::Range all = RowsOf(r);
            const kernels::Range cols = kernels::Share(r.col_count, 16, thread, threads);
            const kernels::Range share = kernels::Share(all.end - all.begin, 1, thread, threads);
            WithGradients(view, step.gradient_scale, [&](const auto& get) {
                const auto square = [&](int64_t i) {
                    const double g = get(i - r.begin);
                    return g * g;
                };
                ForRowsOf(r, all.begin, all.end, [&](int64_t row, int64_t first, int64_t last) {
                    double* const col_sums =
                        sums_.data() + f.ColsOf(r.row_begin + row) + r.col_begin;
                    const int64_t end = std::min(last, cols.end);
                    for (int64_t c = std::max(first, cols.begin); c < end; ++c) {
                        col_sums[c] += square(row * r.col_count + c);
                    }
                });
                if (f.rows == 0) return;
                ForRowsOf(r, all.begin + share.begin, all.begin + share.end,
                          [&](int64_t row, int64_t first, int64_t last) {
                              double sum = 0;
                              for (int64_t c = first; c < last; ++c) {
                                  sum += square(row * r.col_count + c);
                              }
                              sums_[f.rows_at + static_cast<size_t>(r.row_begin + row)] += sum;
                          });
            });
        });
    });
    if (!options_.scale_parameter) return;
    VisitPieces(part, Extent::kSole, [&](const MemberPiece& piece) {
        const PieceView view = ViewOf(context_.state, part, piece);
        double& sum = sums_[moments_.size() + FactorsOf(piece).number];
        for (int64_t i = 0; i < view.count; ++i) {
            sum += double{view.weights[i]} * double{view.weights[i]};
        }
    });
}

void Adafactor::UpdateMoments(const UpdateStep& step) {
    const double kept = 1 - std::pow(static_cast<double>(step.number), options_.decay_rate);
    const auto update = [&](size_t at, double count) {
        const double mean = sums_[at] / count + options_.eps_square;
        moments_[at] = static_cast<float>(kept * moments_[at] + (1 - kept) * mean);
    };
    for (const auto& [name, f] : factors_) {
        const auto rows = static_cast<size_t>(f.rows);
        const auto cols = static_cast<size_t>(f.cols * f.matrices);
        const auto rows_of_one = static_cast<size_t>(f.rows_of_one());
        std::vector<double> means(static_cast<size_t>(f.matrices));  // of rows, by matrix
        for (size_t i = 0; i < rows; ++i) {
            update(f.rows_at + i, static_cast<double>(f.cols));
            means[i / rows_of_one] +=
                moments_[f.rows_at + i] / static_cast<double>(rows_of_one);
        }
        for (size_t i = 0; i < cols; ++i) {
            update(f.cols_at + i, static_cast<double>(rows_of_one));
        }
        for (size_t i = 0; i < rows; ++i) {
            const double row = moments_[f.rows_at + i] / means[i / rows_of_one];
            inverse_[f.rows_at + i] = static_cast<float>(1 / std::sqrt(row));
        }
        for (size_t i = 0; i < cols; ++i) {
            const double col = moments_[f.cols_at + i];
            inverse_[f.cols_at + i] = static_cast<float>(1 / std::sqrt(col));
        }
    }
}

// A row's sum is one thread's, and rows are added in their order.
void Adafactor::AddUpdates(OwnPart& part, const UpdateStep& step, std::vector<double>& squares) {
    VisitPieces(part, Extent::kSole, [&](const MemberPiece& piece) {
        const Factors& f = FactorsOf(piece);
        const PieceView view = ViewOf(context_.state, part, piece);
        const Region& r = piece.region;
        const kernels::Range all = RowsOf(r);
        std::vector<double> of_rows(static_cast<size_t>(all.end - all.begin));
        context_.training.InParts([&](int thread, int threads) {
            const kernels::Range share = kernels::Share(all.end - all.begin, 1, thread, threads);
            WithGradients(view, step.gradient_scale, [&](const auto& get) {
                ForRowsOf(r, all.begin + share.begin, all.begin + share.end,
                          [&](int64_t row, int64_t first, int64_t last) {
                              const double scale = InverseRow(f, r.row_begin + row);
                              const float* const inverse = InverseCols(f, r, row);
                              double sum = 0;
                              for (int64_t c = first; c < last; ++c) {
                                  const double u =
                                      get(row * r.col_count + c - r.begin) * inverse[c];
                                  sum += u * u;
                              }
                              of_rows[static_cast<size_t>(row - all.begin)] = sum * scale * scale;
                          });
            });
        });
        for (const double sum : of_rows) squares[f.number] += sum;
    });
}

void Adafactor::UpdatePart(size_t index, const UpdateStep& step) {
    OwnPart& part = context_.state.parts()[index];
    context_.training.InParts([&](int thread, int threads) {
        VisitPieces(part, Extent::kOwn, [&](const MemberPiece& piece) {
            const Factors& f = FactorsOf(piece);
            const PieceView view = ViewOf(context_.state, part, piece);
            const Region& r = piece.region;
            const kernels::Range all = RowsOf(r);
            const kernels::Range share = kernels::Share(all.end - all.begin, 1, thread, threads);
            const double decay = piece.is_matrix() ? options_.weight_decay : 0.0;
            const auto kept = static_cast<float>(1 - decay * RateOf(f, step));
            const auto rate = static_cast<float>(rates_[f.number]);
            WithGradients(view, step.gradient_scale, [&](const auto& get) {
                ForRowsOf(r, all.begin + share.begin, all.begin + share.end,
                          [&](int64_t row, int64_t first, int64_t last) {
                              const float scale = rate * InverseRow(f, r.row_begin + row);
                              const float* const inverse = InverseCols(f, r, row);
                              const int64_t at = row * r.col_count - r.begin;
                              for (int64_t c = first; c < last; ++c) {
                                  float& p = view.weights[at + c];
                                  p = p * kept - get(at + c) * inverse[c] * scale;
                              }
                          });
            });
            if (view.copy == nullptr) return;
            const int64_t first = std::max((all.begin + share.begin) * r.col_count, r.begin);
            const int64_t last = std::min((all.begin + share.end) * r.col_count, r.end);
            const int64_t count = std::max(last - first, int64_t{0});
            const kernels::dense::ConstMatrix from{view.weights + first - r.begin, count};
            const kernels::dense::Matrix to{view.copy, count, view.copy_type};
            context_.training.dense().scale({from, 1, count, 1, to.From(0, first - r.begin)}, 0, 1);
        });
    });
}

std::vector<Array> Adafactor::Arrays(const std::set<std::string, std::less<>>& tensors) const {
    std::vector<Array> arrays;
    for (const std::string& name : tensors) {
        const Factors& f = factors_.at(name);
        if (f.rows > 0) arrays.push_back({kRowsKind, name, 1, f.rows, SafeType::kF32});
        arrays.push_back({kColsKind, name, 1, f.cols * f.matrices, SafeType::kF32});
    }
    return arrays;
}

void Adafactor::VisitKeptPieces(Extent extent, const VisitKept& visit) {
    if (extent == Extent::kSole && world_ != nullptr && world_->rank() != 0) return;
    const auto all = [&](const char* kind, const std::string& name, size_t at, int64_t count) {
        const Array array{kind, name, 1, count, SafeType::kF32};
        visit({array, Region::Whole(array),
               std::span(moments_).subspan(at, static_cast<size_t>(count)), {}, {}});
    };
    for (const auto& [name, f] : factors_) {
        if (f.rows > 0) all(kRowsKind, name, f.rows_at, f.rows);
        all(kColsKind, name, f.cols_at, f.cols * f.matrices);
    }
}

}  // namespace

std::unique_ptr<UpdateRule> MakeAdafactor(const UpdateOptions& options,
                                          const UpdateContext& context) {
    return std::make_unique<Adafactor>(options, context);
}

}  // namespace weft::train
