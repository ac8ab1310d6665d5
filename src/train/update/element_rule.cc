// Rules that update each element from its own state: float32 vectors with the size of an own part.
#include <algorithm>

#include "train/update/kinds.h"

namespace weft::train {
namespace {

class ElementRule final : public UpdateRule {
  public:
    ElementRule(const UpdateOptions& options, const UpdateContext& context)
        : options_(options), context_(context) {
        if (options.kind == UpdateKind::kLion) {
            kinds_ = {"lion_m"};
        } else if (options.kind == UpdateKind::kScheduleFree) {
            kinds_ = {"schedule_free_z", "schedule_free_v"};
        } else if (options.kind != UpdateKind::kSgd) {
            kinds_.assign(std::begin(kAdamKinds), std::end(kAdamKinds));
        } else if (options.momentum > 0) {
            kinds_ = {"momentum"};
        }
    }

    void Prepare(program::Program& program) override {
        for (const OwnPart& part : context_.state.parts()) {
            std::vector<program::ValueId>& kept = kept_.emplace_back();
            for (const char* kind : kinds_) {
                kept.push_back(AddKept(program, fmt::format("update{}.{}", kept_.size() - 1, kind),
                                       DType::kF32, part.unit->own_count));
            }
        }
    }
    void UpdatePart(program::Program& program, size_t index) override {
        const OwnPart& part = context_.state.parts()[index];
        std::vector<program::UpdateRun> runs = RunsOf(part);
        if (!runs.empty()) AddUpdateOp(program, OpOf(std::move(runs)), part, kept_[index]);
    }

    // Schedule-free AdamW: z, from which the reader of the average computes it.
    bool has_view() const override { return options_.kind == UpdateKind::kScheduleFree; }
    program::ValueId AveragePart(program::Program&, size_t index) override {
        return has_view() ? kept_[index][0] : program::kNoValue;
    }
    void ViewPart(program::Program& program, size_t index, bool averaged) override {
        const OwnPart& part = context_.state.parts()[index];
        program::ScheduleFreeView view{options_.beta1, averaged, RunsOf(part)};
        if (view.runs.empty()) return;
        std::vector<program::ValueId> written = {part.weights, part.gradients};
        if (part.copy != program::kNoValue) written.push_back(part.copy);
        std::vector<program::ValueId> read = {kept_[index][0]};
        read.insert(read.end(), written.begin(), written.end());
        program.ops.push_back({std::move(view), std::move(read), std::move(written)});
    }
    // z begins as the weights.
    Status Start(backend::Executable& training) override {
        constexpr int64_t kAtOnce = 1 << 18;
        for (size_t index = 0; has_view() && index < kept_.size(); ++index) {
            const OwnPart& part = context_.state.parts()[index];
            for (int64_t at = 0; at < part.unit->own_count; at += kAtOnce) {
                std::vector<float> some(
                    static_cast<size_t>(std::min(part.unit->own_count - at, kAtOnce)));
                WEFT_TRY(training.ReadFloats(part.weights, at, some));
                WEFT_TRY(training.Write(kept_[index][0], at * static_cast<int64_t>(sizeof(float)),
                                        std::as_bytes(std::span(some))));
            }
        }
        return {};
    }
    std::vector<Array> Arrays(const std::set<std::string, std::less<>>& tensors) const override {
        return ArraysOf(context_, kinds_, tensors);
    }
    void VisitKeptPieces(Extent extent, const VisitKept& visit) const override {
        for (size_t index = 0; index < kept_.size(); ++index) {
            VisitPieces(context_.state.parts()[index], extent, [&](const MemberPiece& piece) {
                const model_files::TensorInfo& tensor = *context_.source.FindTensor(piece.tensor());
                for (size_t k = 0; k < kinds_.size(); ++k) {
                    visit({ArrayOf(tensor, kinds_[k]), piece.region, kept_[index][k], piece.own});
                }
            });
        }
    }

  private:
    static std::vector<program::UpdateRun> RunsOf(const OwnPart& part) {
        std::vector<program::UpdateRun> runs;
        VisitPieces(part, Extent::kOwn, [&](const MemberPiece& piece) {
            runs.push_back({piece.own, piece.own, piece.region.elements(), piece.is_matrix()});
        });
        return runs;
    }
    program::OpAttributes OpOf(std::vector<program::UpdateRun> runs) const {
        if (options_.kind == UpdateKind::kLion) {
            return program::LionUpdate{options_.beta1, options_.beta2, options_.weight_decay,
                                       std::move(runs)};
        }
        if (options_.kind == UpdateKind::kScheduleFree) {
            return program::ScheduleFreeUpdate{options_.beta1, options_.beta2, options_.eps,
                                               options_.weight_decay, std::move(runs)};
        }
        if (options_.kind != UpdateKind::kSgd) {
            program::AdamUpdate adam = AdamOf(options_);
            adam.runs = std::move(runs);
            return adam;
        }
        return program::SgdUpdate{options_.momentum, options_.dampening, options_.weight_decay,
                                  options_.nesterov, std::move(runs)};
    }

    const UpdateOptions options_;
    const UpdateContext context_;
    std::vector<const char*> kinds_;
    std::vector<std::vector<program::ValueId>> kept_;  // by part, by kind
};

}  // namespace

std::unique_ptr<UpdateRule> MakeElementRule(const UpdateOptions& options,
                                            const UpdateContext& context) {
    return std::make_unique<ElementRule>(options, context);
}

}  // namespace weft::train
