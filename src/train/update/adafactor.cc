// Adafactor (Shazeer and Stern 2018), as in transformers.optimization.Adafactor, without a first
// moment. The second moments of a matrix are the product of one number per row and one per column,
// so they need rows + cols numbers. A vector has one moment per element; a tensor of several
// matrices (experts) has separate moments for each matrix.
//
// A matrix may be sharded over many ranks, by rows, columns or elements. Each rank adds the squares
// that it alone has to the row and column sums of all tensors. The sums are all-reduced, so every
// rank keeps the same moments of the whole model. The squares of the updates are summed in the same
// way, one number per tensor, for clipping.
#include <map>

#include "train/update/kinds.h"

namespace weft::train {
namespace {

using program::FactoredRun;
using program::FactoredTensor;
using program::ValueId;

constexpr const char* kRowsKind = "adafactor_rows";
constexpr const char* kColsKind = "adafactor_cols";

class Adafactor final : public UpdateRule {
  public:
    Adafactor(const UpdateOptions& options, const UpdateContext& context)
        : options_(options), context_(context) {
        for (const std::string& name : context.state.trained_tensors()) {
            const model_files::TensorInfo& tensor = *context.source.FindTensor(name);
            const bool matrix = !IsVector(tensor);
            FactoredTensor factors;
            factors.rows = matrix ? tensor.rows : 0;
            factors.cols = matrix ? tensor.cols : tensor.rows * tensor.cols;
            factors.matrices = tensor.dims[2] * tensor.dims[3];
            factors.rows_at = numbers_;
            factors.number = static_cast<int64_t>(factors_.size());
            factors.cols_at = numbers_ + factors.rows;
            numbers_ = factors.cols_at + factors.cols * factors.matrices;
            factors_.emplace(name, factors);
        }
    }

    void Prepare(program::Program& program) override;
    void UpdatePart(program::Program& program, size_t index) override;
    std::vector<Array> Arrays(const std::set<std::string, std::less<>>& tensors) const override;
    void VisitKeptPieces(Extent extent, const VisitKept& visit) const override;

  private:
    std::vector<FactoredRun> RunsOf(const OwnPart& part, Extent extent) const {
        std::vector<FactoredRun> runs;
        VisitPieces(part, extent, [&](const MemberPiece& piece) {
            const TensorRegion& r = piece.region;
            runs.push_back({factors_.at(piece.tensor()),
                            r.row_begin,
                            r.col_begin,
                            r.col_count,
                            {r.begin, r.end},
                            piece.own,
                            piece.is_matrix()});
        });
        return runs;
    }
    // Zeros the sum, lets `add` add each part, then sums over all ranks.
    template <typename F>
    void AddSum(program::Program& program, ValueId sum, const F& add) const {
        program.ops.push_back({program::Zero{}, {}, {sum}});
        for (const OwnPart& part : context_.state.parts()) {
            std::vector<FactoredRun> runs = RunsOf(part, Extent::kSole);
            if (!runs.empty()) add(part, std::move(runs));
        }
        if (!context_.several_ranks) return;
        program.ops.push_back({program::SumOver{program::Group::kWorld}, {sum}, {sum}});
    }

    const UpdateOptions options_;
    const UpdateContext context_;
    std::map<std::string, FactoredTensor, std::less<>> factors_;
    int64_t numbers_ = 0;  // moments of all tensors
    // Means of squares, factors for gradients, and sums of an update (program/update.h).
    ValueId moments_ = program::kNoValue, inverse_ = program::kNoValue;
    ValueId sums_ = program::kNoValue, squares_ = program::kNoValue;
};

void Adafactor::Prepare(program::Program& program) {
    const auto tensors = static_cast<int64_t>(factors_.size());
    moments_ = AddKept(program, "update.moments", DType::kF32, numbers_);
    inverse_ = AddKept(program, "update.inverse", DType::kF32, numbers_);
    const DType wide = context_.float64_sums ? DType::kF64 : DType::kF32;
    sums_ = AddKept(program, "update.sums", wide, numbers_ + tensors);
    squares_ = AddKept(program, "update.squares", wide, tensors);
    AddSum(program, sums_, [&](const OwnPart& part, std::vector<FactoredRun> runs) {
        program.ops.push_back(
            {program::AdafactorSums{std::move(runs), numbers_, options_.scale_parameter},
             {part.gradients, part.weights, sums_},
             {sums_}});
    });
    program::AdafactorMoments moments{{}, options_.decay_rate, options_.eps_square};
    for (const auto& [name, factors] : factors_) moments.tensors.push_back(factors);
    program.ops.push_back({std::move(moments), {sums_, moments_, inverse_}, {moments_, inverse_}});
    AddSum(program, squares_, [&](const OwnPart& part, std::vector<FactoredRun> runs) {
        program.ops.push_back({program::AdafactorSizes{std::move(runs)},
                               {part.gradients, inverse_, squares_},
                               {squares_}});
    });
}

void Adafactor::UpdatePart(program::Program& program, size_t index) {
    const OwnPart& part = context_.state.parts()[index];
    program::AdafactorUpdate op{RunsOf(part, Extent::kOwn), numbers_,
                                options_.eps_scale,         options_.clip_threshold,
                                options_.weight_decay,      options_.scale_parameter,
                                options_.relative_step};
    if (op.runs.empty()) return;
    std::vector<ValueId> read = {part.gradients, inverse_, sums_, squares_, part.weights};
    std::vector<ValueId> written = {part.weights};
    if (part.copy != program::kNoValue) {
        read.push_back(part.copy);
        written.push_back(part.copy);
    }
    program.ops.push_back({std::move(op), std::move(read), std::move(written)});
}

std::vector<Array> Adafactor::Arrays(const std::set<std::string, std::less<>>& tensors) const {
    std::vector<Array> arrays;
    for (const std::string& name : tensors) {
        const FactoredTensor& f = factors_.at(name);
        if (f.rows > 0) arrays.push_back({kRowsKind, name, 1, f.rows, SafeType::kF32});
        arrays.push_back({kColsKind, name, 1, f.cols * f.matrices, SafeType::kF32});
    }
    return arrays;
}

void Adafactor::VisitKeptPieces(Extent extent, const VisitKept& visit) const {
    if (extent == Extent::kSole && !context_.first_rank) return;
    const auto all = [&](const char* kind, const std::string& name, int64_t at, int64_t count) {
        const Array array{kind, name, 1, count, SafeType::kF32};
        visit({array, TensorRegion::Whole(array), moments_, at});
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
