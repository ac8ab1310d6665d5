// An average of the weights over updates, beside an optimizer's own state: a moving average
// (--ema), or the sum over the last updates (--average-last), which the reader divides by their
// number.
//
// The op is SGD's with the weights as gradients and a rate of 0, which leaves the weights as they
// are: its momentum, momentum * m + (1 - dampening) * weights, and at first the weights, is the
// average. So an average is sharded, saved and computed on any device as optimizer state is.
#include <algorithm>
#include <iterator>

#include "train/update/kinds.h"

namespace weft::train {
namespace {

class AveragedRule final : public UpdateRule {
  public:
    AveragedRule(std::unique_ptr<UpdateRule> rule, const UpdateOptions& options,
                 const UpdateContext& context)
        : rule_(std::move(rule)), options_(options), context_(context) {}

    void Prepare(program::Program& program) override {
        rule_->Prepare(program);
        for (const OwnPart& part : context_.state.parts()) {
            averages_.push_back(AddKept(program, fmt::format("average{}", averages_.size()),
                                        DType::kF32, part.unit->own_count));
        }
    }
    void UpdatePart(program::Program& program, size_t index) override {
        rule_->UpdatePart(program, index);
    }
    program::ValueId AveragePart(program::Program& program, size_t index) override {
        const OwnPart& part = context_.state.parts()[index];
        program::SgdUpdate sum;
        sum.momentum = options_.ema > 0 ? options_.ema : 1;
        sum.dampening = options_.ema > 0 ? options_.ema : 0;
        sum.runs = {{0, 0, part.unit->own_count, false}};
        const program::ValueId average = averages_[index];
        if (part.unit->own_count > 0) {
            program.ops.push_back(
                {std::move(sum), {part.weights, part.weights, average}, {part.weights, average}});
        }
        return average;
    }
    Status Start(backend::Executable& training) override { return rule_->Start(training); }

    std::vector<Array> Arrays(const std::set<std::string, std::less<>>& tensors) const override {
        std::vector<Array> arrays = rule_->Arrays(tensors);
        const char* const kinds[] = {AverageKind(options_)};
        std::ranges::copy(ArraysOf(context_, kinds, tensors), std::back_inserter(arrays));
        return arrays;
    }
    void VisitKeptPieces(Extent extent, const VisitKept& visit) const override {
        rule_->VisitKeptPieces(extent, visit);
        for (size_t index = 0; index < averages_.size(); ++index) {
            VisitPieces(context_.state.parts()[index], extent, [&](const MemberPiece& piece) {
                const model_files::TensorInfo& tensor = *context_.source.FindTensor(piece.tensor());
                visit({ArrayOf(tensor, AverageKind(options_)), piece.region, averages_[index],
                       piece.own});
            });
        }
    }

  private:
    const std::unique_ptr<UpdateRule> rule_;
    const UpdateOptions options_;
    const UpdateContext context_;
    std::vector<program::ValueId> averages_;  // by part
};

}  // namespace

std::unique_ptr<UpdateRule> WithAverage(std::unique_ptr<UpdateRule> rule,
                                        const UpdateOptions& options,
                                        const UpdateContext& context) {
    if (AverageKind(options) == nullptr) return rule;
    return std::make_unique<AveragedRule>(std::move(rule), options, context);
}

}  // namespace weft::train
