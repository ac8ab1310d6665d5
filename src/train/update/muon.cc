// Muon (Jordan et al. 2024) for hidden matrices, and AdamW for the embedding, the output matrix,
// vectors, biases and taps of convolutions. A rank holds the matrices that it updates whole, and
// each matrix of a stack (experts) is one.
#include "base/check.h"
#include "train/update/kinds.h"

namespace weft::train {
namespace {

using program::ValueId;

constexpr const char* kMomentum = "muon_m";

bool IsHidden(const model_files::TensorInfo& tensor) {
    const auto has = [&](std::string_view part) {
        return tensor.name.find(part) != std::string::npos;
    };
    return !IsVector(tensor) && !IsBias(tensor.name) && tensor.name.starts_with("blk.") &&
           !has("conv1d") && !has(".conv.");
}

class Muon final : public UpdateRule {
  public:
    Muon(const UpdateOptions& options, const UpdateContext& context)
        : options_(options), context_(context) {}

    void Prepare(program::Program& program) override {
        for (const OwnPart& part : context_.state.parts()) {
            Kept kept;
            int64_t hidden = 0, others = 0;
            for (const program::FlatBucket::Member& member : part.unit->members) {
                int64_t& count = IsHidden(TensorOf(member)) ? hidden : others;
                kept.at.push_back(count);
                count += member.weight.shape.Elements(0, 0);
            }
            const std::string name = fmt::format("update{}.", kept_.size());
            kept.momentum = AddKept(program, name + kMomentum, DType::kF32, hidden);
            for (size_t i = 0; i < 2; ++i) {
                kept.adam[i] = AddKept(program, name + kAdamKinds[i], DType::kF32, others);
            }
            kept_.push_back(std::move(kept));
        }
    }

    void UpdatePart(program::Program& program, size_t index) override {
        const OwnPart& part = context_.state.parts()[index];
        program::MuonUpdate muon{
            options_.momentum, options_.weight_decay, true, options_.muon_adam_size, {}};
        program::AdamUpdate adam = AdamOf(options_);
        VisitPieces(part, Extent::kOwn, [&](const MemberPiece& piece) {
            const int64_t kept = KeptAt(index, piece), count = piece.region.elements();
            if (!IsHidden(TensorOf(piece.member))) {
                adam.runs.push_back({piece.own, kept, count, piece.is_matrix()});
                return;
            }
            const program::Shape& shape = piece.member.weight.shape;
            WEFT_CHECK(shape.rank > 1);
            const int64_t rows = shape[shape.rank - 2], cols = shape[shape.rank - 1];
            for (int64_t at = 0; at < count; at += rows * cols) {
                muon.matrices.push_back({piece.own + at, kept + at, rows, cols});
            }
        });
        const Kept& kept = kept_[index];
        if (!muon.matrices.empty()) AddUpdateOp(program, std::move(muon), part, {kept.momentum});
        if (adam.runs.empty()) return;
        AddUpdateOp(program, std::move(adam), part, {kept.adam[0], kept.adam[1]});
    }

    std::vector<Array> Arrays(const std::set<std::string, std::less<>>& tensors) const override {
        std::vector<Array> arrays;
        for (const std::string& name : tensors) {
            const model_files::TensorInfo& tensor = *context_.source.FindTensor(name);
            for (const char* kind : KindsOf(tensor)) arrays.push_back(ArrayOf(tensor, kind));
        }
        return arrays;
    }

    void VisitKeptPieces(Extent extent, const VisitKept& visit) const override {
        for (size_t index = 0; index < kept_.size(); ++index) {
            VisitPieces(context_.state.parts()[index], extent, [&](const MemberPiece& piece) {
                const model_files::TensorInfo& tensor = TensorOf(piece.member);
                const Kept& kept = kept_[index];
                const bool hidden = IsHidden(tensor);
                size_t i = 0;
                for (const char* kind : KindsOf(tensor)) {
                    visit({ArrayOf(tensor, kind), piece.region,
                           hidden ? kept.momentum : kept.adam[i++], KeptAt(index, piece)});
                }
            });
        }
    }

  private:
    struct Kept {
        ValueId momentum = program::kNoValue, adam[2] = {};
        std::vector<int64_t> at;  // by member: its first element in the state
    };

    const model_files::TensorInfo& TensorOf(const program::FlatBucket::Member& member) const {
        return *context_.source.FindTensor(member.weight.slice.name);
    }
    static std::span<const char* const> KindsOf(const model_files::TensorInfo& tensor) {
        static constexpr const char* kHidden[] = {kMomentum};
        if (IsHidden(tensor)) return kHidden;
        return kAdamKinds;
    }
    int64_t KeptAt(size_t index, const MemberPiece& piece) const {
        const program::FlatBucket& unit = *context_.state.parts()[index].unit;
        const auto number = static_cast<size_t>(&piece.member - unit.members.data());
        return kept_[index].at[number] + piece.own + unit.own_begin - piece.member.begin;
    }

    const UpdateOptions options_;
    const UpdateContext context_;
    std::vector<Kept> kept_;  // by part
};

}  // namespace

std::unique_ptr<UpdateRule> MakeMuon(const UpdateOptions& options, const UpdateContext& context) {
    return std::make_unique<Muon>(options, context);
}

}  // namespace weft::train
