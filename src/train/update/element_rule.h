// Rules that update each element from what they keep of it alone: float32 arrays of an own part's
// size.
#pragma once

#include <vector>

#include "kernels/dense/rows.h"
#include "train/update/rule.h"

namespace weft::train {

// A member's piece in memory.
struct PieceView {
    float* weights = nullptr;
    const std::byte* gradients = nullptr;
    kernels::dense::Element gradient_type = kernels::dense::Element::kF32;
    int64_t count = 0;
    void* copy = nullptr;  // of the weights, that passes read; null where they read these
    kernels::dense::Element copy_type = kernels::dense::Element::kBf16;
};
PieceView ViewOf(const TrainState& state, OwnPart& part, const MemberPiece& piece);

// Of all units' own parts.
int64_t OwnElements(const std::vector<program::Unit>& units);

class ElementRule : public UpdateRule {
  public:
    uint64_t size_bytes() const override;
    void Start(coll::Comm* world) override;
    void UpdatePart(size_t index, const UpdateStep& step) override;
    std::vector<Array> Arrays(const std::set<std::string, std::less<>>& tensors) const override;
    void VisitKeptPieces(Extent extent, const VisitKept& visit) override;

  protected:
    // kinds: of the arrays.
    ElementRule(const UpdateContext& context, std::vector<const char*> kinds)
        : context_(context), kinds_(std::move(kinds)) {}

    // This thread's share of a piece. kept: of the piece, one for each kind.
    virtual void UpdatePiece(const PieceView& piece, bool is_matrix, std::span<float* const> kept,
                             const UpdateStep& step, int thread, int threads) const = 0;

    const UpdateContext context_;

  private:
    const std::vector<const char*> kinds_;
    std::vector<std::vector<std::vector<float>>> kept_;  // by part, by kind
};

std::unique_ptr<UpdateRule> MakeAdam(const UpdateOptions& options, const UpdateContext& context);
std::unique_ptr<UpdateRule> MakeSgd(const UpdateOptions& options, const UpdateContext& context);
std::unique_ptr<UpdateRule> MakeAdafactor(const UpdateOptions& options,
                                          const UpdateContext& context);
std::unique_ptr<UpdateRule> MakeAdam8bit(const UpdateOptions& options,
                                         const UpdateContext& context);

// Adam's numbers of an update; decay is for matrices.
kernels::dense::AdamArgs AdamNumbers(const UpdateOptions& options, const UpdateStep& step,
                                     bool is_matrix);
inline constexpr const char* kAdamKinds[] = {"adam_m", "adam_v"};

}  // namespace weft::train
