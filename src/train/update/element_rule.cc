#include "train/update/element_rule.h"

#include <cmath>

namespace weft::train {
namespace {

class Adam final : public ElementRule {
  public:
    Adam(const UpdateOptions& options, const UpdateContext& context)
        : ElementRule(context, {kAdamKinds[0], kAdamKinds[1]}), options_(options) {}

  private:
    void UpdatePiece(const PieceView& piece, bool is_matrix, std::span<float* const> kept,
                     const UpdateStep& step, int thread, int threads) const override {
        kernels::dense::AdamArgs args = AdamNumbers(options_, step, is_matrix);
        args.p = piece.weights;
        args.g = piece.gradients;
        args.g_type = piece.gradient_type;
        args.m = kept[0];
        args.v = kept[1];
        args.count = piece.count;
        args.copy = piece.copy;
        args.copy_type = piece.copy_type;
        context_.training.dense().adam(args, thread, threads);
    }

    const UpdateOptions options_;
};

class Sgd final : public ElementRule {
  public:
    Sgd(const UpdateOptions& options, const UpdateContext& context)
        : ElementRule(context, options.momentum > 0 ? std::vector<const char*>{"momentum"}
                                                    : std::vector<const char*>{}),
          options_(options) {}

  private:
    void UpdatePiece(const PieceView& piece, bool is_matrix, std::span<float* const> kept,
                     const UpdateStep& step, int thread, int threads) const override {
        kernels::dense::SgdArgs args;
        args.p = piece.weights;
        args.b = kept.empty() ? nullptr : kept[0];
        args.g = piece.gradients;
        args.g_type = piece.gradient_type;
        args.count = piece.count;
        args.rate = static_cast<float>(step.rate);
        args.momentum = static_cast<float>(options_.momentum);
        // (As torch.optim.SGD: the first gradient is taken whole.)
        args.taken = step.number == 1 ? 1.0f : static_cast<float>(1 - options_.dampening);
        args.l2 = is_matrix ? static_cast<float>(options_.weight_decay) : 0.0f;
        args.nesterov = options_.nesterov;
        args.grad_scale = static_cast<float>(step.gradient_scale);
        args.copy = piece.copy;
        args.copy_type = piece.copy_type;
        context_.training.dense().sgd(args, thread, threads);
    }

    const UpdateOptions options_;
};

}  // namespace

PieceView ViewOf(const TrainState& state, OwnPart& part, const MemberPiece& piece) {
    const program::Unit& unit = *part.unit;
    const int64_t bytes = RowBytes(unit.dtype, piece.own);
    PieceView view;
    view.weights = part.weights.data() + piece.own;
    view.gradients =
        state.OwnGradientBytes(unit).data() + RowBytes(unit.gradient_dtype, piece.own);
    view.gradient_type = backend::ElementOf(unit.gradient_dtype);
    view.copy_type = backend::ElementOf(unit.dtype);
    view.count = piece.region.elements();
    if (unit.dtype != DType::kF32) view.copy = state.OwnWeightBytes(unit).data() + bytes;
    return view;
}

int64_t OwnElements(const std::vector<program::Unit>& units) {
    int64_t elements = 0;
    for (const program::Unit& unit : units) elements += unit.own_count;
    return elements;
}

uint64_t ElementRule::size_bytes() const {
    return static_cast<uint64_t>(OwnElements(context_.units)) * kinds_.size() * sizeof(float);
}

void ElementRule::Start(coll::Comm* /*world*/) {
    for (const OwnPart& part : context_.state.parts()) {
        const std::vector<float> zeros(static_cast<size_t>(part.unit->own_count));
        kept_.emplace_back(kinds_.size(), zeros);
    }
}

void ElementRule::UpdatePart(size_t index, const UpdateStep& step) {
    OwnPart& part = context_.state.parts()[index];
    context_.training.InParts([&](int thread, int threads) {
        VisitPieces(part, Extent::kOwn, [&](const MemberPiece& piece) {
            float* kept[2];
            for (size_t k = 0; k < kinds_.size(); ++k) {
                kept[k] = kept_[index][k].data() + piece.own;
            }
            UpdatePiece(ViewOf(context_.state, part, piece), piece.is_matrix(),
                        std::span(kept).first(kinds_.size()), step, thread, threads);
        });
    });
}

std::vector<Array> ElementRule::Arrays(const std::set<std::string, std::less<>>& tensors) const {
    std::vector<Array> arrays;
    for (const std::string& name : tensors) {
        for (const char* kind : kinds_) {
            arrays.push_back(ArrayOf(*context_.source.FindTensor(name), kind));
        }
    }
    return arrays;
}

void ElementRule::VisitKeptPieces(Extent extent, const VisitKept& visit) {
    for (size_t index = 0; index < kept_.size(); ++index) {
        VisitPieces(context_.state.parts()[index], extent, [&](const MemberPiece& piece) {
            const model_files::TensorInfo& tensor = *context_.source.FindTensor(piece.tensor());
            for (size_t k = 0; k < kinds_.size(); ++k) {
                const auto values = std::span(kept_[index][k])
                                        .subspan(static_cast<size_t>(piece.own),
                                                 static_cast<size_t>(piece.region.elements()));
                visit({ArrayOf(tensor, kinds_[k]), piece.region, values, {}, {}});
            }
        });
    }
}

kernels::dense::AdamArgs AdamNumbers(const UpdateOptions& options, const UpdateStep& step,
                                     bool is_matrix) {
    const auto t = static_cast<double>(step.number);
    kernels::dense::AdamArgs args;
    args.rate = static_cast<float>(step.rate);
    args.beta1 = static_cast<float>(options.beta1);
    args.beta2 = static_cast<float>(options.beta2);
    args.eps = static_cast<float>(options.eps);
    args.correction1 = static_cast<float>(1 - std::pow(options.beta1, t));
    args.correction2 = static_cast<float>(1 - std::pow(options.beta2, t));
    args.grad_scale = static_cast<float>(step.gradient_scale);
    const float decay = is_matrix ? static_cast<float>(options.weight_decay) : 0.0f;
    (options.kind == UpdateKind::kAdam ? args.l2 : args.decay) = decay;
    return args;
}

std::unique_ptr<UpdateRule> MakeAdam(const UpdateOptions& options, const UpdateContext& context) {
    return std::make_unique<Adam>(options, context);
}

std::unique_ptr<UpdateRule> MakeSgd(const UpdateOptions& options, const UpdateContext& context) {
    return std::make_unique<Sgd>(options, context);
}

std::unique_ptr<UpdateRule> MakeUpdateRule(const UpdateOptions& options,
                                           const UpdateContext& context) {
    switch (options.kind) {
        case UpdateKind::kAdamW:
        case UpdateKind::kAdam: return MakeAdam(options, context);
        case UpdateKind::kSgd: return MakeSgd(options, context);
        case UpdateKind::kAdafactor: return MakeAdafactor(options, context);
        case UpdateKind::kAdam8bit: return MakeAdam8bit(options, context);
    }
    return nullptr;
}

}  // namespace weft::train
