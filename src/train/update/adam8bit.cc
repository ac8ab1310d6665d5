// 8-bit Adam (Dettmers et al. 2022): both moments as bytes with one scale per block of 256, and
// decoupled weight decay as in AdamW. Moments are widened to float32, updated and used, then
// narrowed. Vectors, biases, tensors with fewer than 4096 elements, and matrices of a stack that
// begin within a block keep float32.
//
// Units and shares begin at multiples of a block (UnitGrainOf), so replicas and ZeRO stages split
// no block; each tensor rank has its own blocks. Checkpoints hold Adam's moments in float32: they
// are widened on writing and narrow to the same bytes on reading. So any layout, and AdamW, can
// resume from them.
#include <algorithm>

#include "base/check.h"
#include "tensor/dynamic_codes.h"
#include "train/update/kinds.h"

namespace weft::train {
namespace {

using program::ValueId;

constexpr int64_t kLeastElements = 4096;

class Adam8bit final : public UpdateRule {
  public:
    Adam8bit(const UpdateOptions& options, const UpdateContext& context)
        : options_(options), context_(context) {}

    void Prepare(program::Program& program) override {
        for (const OwnPart& part : context_.state.parts()) AddKeptOf(program, part);
    }
    void UpdatePart(program::Program& program, size_t index) override;
    Status Start(backend::Executable& training) override;
    std::vector<Array> Arrays(const std::set<std::string, std::less<>>& tensors) const override {
        return ArraysOf(context_, kAdamKinds, tensors);
    }
    void VisitKeptPieces(Extent extent, const VisitKept& visit) const override;

  private:
    struct Kept {
        ValueId codes[2], scales[2];   // of both moments of an own part
        ValueId wide[2];               // float32 state of pieces, one after another
        std::vector<int64_t> wide_at;  // by member; -1: it is narrow
    };

    bool IsNarrow(const program::FlatBucket::Member& member) const {
        const std::string& name = member.weight.slice.name;
        const model_files::TensorInfo& tensor = *context_.source.FindTensor(name);
        return member.weight.shape.rank > 1 && !IsBias(name) &&
               tensor.rows * tensor.cols >= kLeastElements && member.begin % kStateBlock == 0;
    }
    void AddKeptOf(program::Program& program, const OwnPart& part);
    // Start of a piece that keeps float32; -1: it is narrow.
    static int64_t WideAt(const Kept& kept, const OwnPart& part, const MemberPiece& piece) {
        const int64_t at =
            kept.wide_at[static_cast<size_t>(&piece.member - part.unit->members.data())];
        return at < 0 ? -1 : at + piece.region.begin;
    }

    const UpdateOptions options_;
    const UpdateContext context_;
    std::vector<Kept> kept_;  // by part
};

void Adam8bit::AddKeptOf(program::Program& program, const OwnPart& part) {
    const program::FlatBucket& unit = *part.unit;
    WEFT_CHECK(unit.own_begin % kStateBlock == 0);
    Kept kept;
    int64_t wide = 0;
    for (const program::FlatBucket::Member& member : unit.members) {
        const bool narrow = IsNarrow(member);
        kept.wide_at.push_back(narrow ? -1 : wide);
        if (!narrow) wide += member.weight.shape.Elements(0, 0);
    }
    for (size_t i = 0; i < 2; ++i) {
        const std::string name = fmt::format("update{}.{}", kept_.size(), kAdamKinds[i]);
        kept.codes[i] = AddKept(program, name + ".codes", DType::kI32, (unit.own_count + 3) / 4);
        kept.scales[i] = AddKept(program, name + ".scales", DType::kF32,
                                 (unit.own_count + kStateBlock - 1) / kStateBlock);
        kept.wide[i] = AddKept(program, name, DType::kF32, wide);
    }
    kept_.push_back(std::move(kept));
}

void Adam8bit::UpdatePart(program::Program& program, size_t index) {
    const OwnPart& part = context_.state.parts()[index];
    const Kept& kept = kept_[index];
    program::AdamUpdate narrow = AdamOf(options_), wide = narrow;
    VisitPieces(part, Extent::kOwn, [&](const MemberPiece& piece) {
        const int64_t at = WideAt(kept, part, piece), count = piece.region.elements();
        program::AdamUpdate& op = at < 0 ? narrow : wide;
        op.runs.push_back({piece.own, at < 0 ? piece.own : at, count, piece.is_matrix()});
    });
    if (!wide.runs.empty()) {
        AddUpdateOp(program, std::move(wide), part, {kept.wide[0], kept.wide[1]});
    }
    if (narrow.runs.empty()) return;
    AddUpdateOp(program, program::Adam8bitUpdate{std::move(narrow)}, part,
                {kept.codes[0], kept.codes[1], kept.scales[0], kept.scales[1]});
}

Status Adam8bit::Start(backend::Executable& training) {
    constexpr int64_t kAtOnce = 1 << 20;
    for (const Kept& kept : kept_) {
        for (size_t i = 0; i < 2; ++i) {
            const uint8_t zero = (i == 0 ? SignedCodes() : UnsignedCodes()).Nearest(0);
            const int64_t bytes = 4 * training.program().value(kept.codes[i]).shape[0];
            const std::vector<std::byte> zeros(static_cast<size_t>(std::min(bytes, kAtOnce)),
                                               std::byte{zero});
            for (int64_t at = 0; at < bytes; at += kAtOnce) {
                const auto count = static_cast<size_t>(std::min(bytes - at, kAtOnce));
                WEFT_TRY(training.Write(kept.codes[i], at, std::span(zeros).first(count)));
            }
        }
    }
    return {};
}

void Adam8bit::VisitKeptPieces(Extent extent, const VisitKept& visit) const {
    static_assert(kKeptGrain % kStateBlock == 0);
    for (size_t index = 0; index < kept_.size(); ++index) {
        const OwnPart& part = context_.state.parts()[index];
        const Kept& kept = kept_[index];
        VisitPieces(part, extent, [&](const MemberPiece& piece) {
            const model_files::TensorInfo& tensor = *context_.source.FindTensor(piece.tensor());
            const int64_t wide = WideAt(kept, part, piece);
            for (size_t i = 0; i < 2; ++i) {
                KeptPiece made{ArrayOf(tensor, kAdamKinds[i]), piece.region, kept.wide[i], wide};
                if (wide < 0) {
                    made.value = kept.codes[i];
                    made.first = piece.own;
                    made.scales = kept.scales[i];
                    made.is_signed = i == 0;
                }
                visit(std::move(made));
            }
        });
    }
}

}  // namespace

std::unique_ptr<UpdateRule> MakeAdam8bit(const UpdateOptions& options,
                                         const UpdateContext& context) {
    return std::make_unique<Adam8bit>(options, context);
}

int64_t UnitGrainOf(UpdateKind kind) {
    return kind == UpdateKind::kAdam8bit ? kStateBlock : 32;
}

}  // namespace weft::train
