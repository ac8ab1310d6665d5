// 8-bit Adam (Dettmers et al. 2022): both moments as bytes with a scale for each block of 256, and
// a decoupled decay as AdamW has. Moments are widened, updated and used in float32, then narrowed.
// Vectors and tensors of fewer than 4096 elements keep float32.
//
// Units and shares begin at multiples of a block (UnitGrainOf), so that replicas and ZeRO stages
// cut no block; tensor ranks have blocks of their own parts. In checkpoints the moments are those
// of Adam, float32, widened as they are written and narrowed to the same bytes again: any layout,
// and AdamW, goes on from them.
#include "train/update/adam8bit.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "train/update/element_rule.h"

namespace weft::train {
namespace {

constexpr int64_t kLeastElements = 4096;
constexpr int kDropped = 18;  // bits of a float below those that Nearest looks up by

// Ascends as x does.
uint32_t Key(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    return ((bits >> 31) != 0 ? ~bits : bits | 0x80000000u) >> kDropped;
}
// The least float of a key.
float LeastOf(uint32_t key) {
    const uint32_t bits = key << kDropped;
    return std::bit_cast<float>((bits >> 31) != 0 ? bits & 0x7fffffffu : ~bits);
}

}  // namespace

DynamicCodes::DynamicCodes(bool is_signed) {
    std::vector<double> positive;
    for (int e = 0; e < 7; ++e) {
        const int steps = 1 << ((is_signed ? 6 : 7) - e);
        for (int i = 0; i < steps; ++i) {
            positive.push_back((0.1 + 0.9 * (i + 0.5) / steps) * std::pow(10.0, -e));
        }
    }
    std::vector<double> all = positive;
    all.insert(all.end(), {0.0, 1.0});
    if (is_signed) {
        const double least = *std::ranges::min_element(positive);
        for (const double value : positive) all.push_back(value == least ? -1.0 : -value);
    }
    std::ranges::sort(all);
    std::ranges::transform(all, values_.begin(), [](double x) { return static_cast<float>(x); });
    for (size_t i = 0; i < middles_.size(); ++i) {
        middles_[i] = static_cast<float>((double{values_[i]} + double{values_[i + 1]}) / 2);
    }
    first_.resize(size_t{1} << (32 - kDropped));
    for (uint32_t key = 0; key < first_.size(); ++key) {
        const float least = LeastOf(key);  // of keys of no numbers: any
        const auto above = std::ranges::partition_point(
            middles_, [&](float middle) { return middle <= least; });
        first_[key] = static_cast<uint8_t>(above - middles_.begin());
    }
}

uint8_t DynamicCodes::Nearest(float x) const {
    size_t code = first_[Key(x)];
    while (code < middles_.size() && middles_[code] <= x) ++code;
    return static_cast<uint8_t>(code);
}

void Widen(const DynamicCodes& codes, std::span<const uint8_t> from, float scale,
           std::span<float> to) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = codes.value(from[i]) * scale;
}

float Narrow(const DynamicCodes& codes, std::span<const float> from, std::span<uint8_t> to) {
    float scale = 0;
    for (const float x : from) scale = std::max(scale, std::abs(x));
    for (size_t i = 0; i < from.size(); ++i) {
        to[i] = codes.Nearest(scale > 0 ? from[i] / scale : 0.0f);
    }
    return scale;
}

namespace {

class Adam8bit final : public UpdateRule {
  public:
    Adam8bit(const UpdateOptions& options, const UpdateContext& context)
        : options_(options), context_(context) {}

    // (Two bytes and a 64th of eight an element; what keeps float32 is little beside it.)
    uint64_t size_bytes() const override {
        const auto elements = static_cast<uint64_t>(OwnElements(context_.units));
        return elements * 2 + elements / kStateBlock * 2 * sizeof(float) +
               8 * static_cast<uint64_t>(WideElements());
    }
    void Start(coll::Comm* world) override;
    void UpdatePart(size_t index, const UpdateStep& step) override;
    std::vector<Array> Arrays(const std::set<std::string, std::less<>>& tensors) const override;
    void VisitKeptPieces(Extent extent, const VisitKept& visit) override;

  private:
    struct Moment {
        std::vector<uint8_t> codes;  // of an own part
        std::vector<float> scales;   // of its blocks
        std::vector<float> wide;     // of the pieces that keep float32, one after the other
    };
    struct Kept {
        Moment moments[2];
        std::vector<size_t> wide_at;  // by member; SIZE_MAX: it is narrow
    };

    bool IsNarrow(const program::Value& weight) const {
        const model_files::TensorInfo& tensor = *context_.source.FindTensor(weight.slice.name);
        return weight.shape.rank > 1 && tensor.rows * tensor.cols >= kLeastElements;
    }
    int64_t WideElements() const {
        int64_t elements = 0;
        for (const program::Unit& unit : context_.units) {
            for (const program::Unit::Member& member : unit.members) {
                if (!IsNarrow(member.weight)) elements += member.weight.shape.Elements(0, 0);
            }
        }
        return elements;
    }
    // Where a piece of the own part that keeps float32 begins; SIZE_MAX: it is narrow.
    static size_t WideAt(const Kept& kept, const OwnPart& part, const MemberPiece& piece) {
        const auto member = static_cast<size_t>(&piece.member - part.unit->members.data());
        if (kept.wide_at[member] == SIZE_MAX) return SIZE_MAX;
        return kept.wide_at[member] + static_cast<size_t>(piece.region.begin);
    }
    void UpdateBlock(Kept& kept, int64_t at, int64_t count, kernels::dense::AdamArgs args) const;
    KeptPiece NarrowPiece(size_t index, const MemberPiece& piece, int moment);

    const UpdateOptions options_;
    const UpdateContext context_;
    const DynamicCodes codes_[2] = {DynamicCodes(true), DynamicCodes(false)};
    std::vector<Kept> kept_;  // by part
};

void Adam8bit::Start(coll::Comm* /*world*/) {
    for (const OwnPart& part : context_.state.parts()) {
        const program::Unit& unit = *part.unit;
        WEFT_CHECK(unit.own_begin % kStateBlock == 0);
        Kept kept;
        size_t wide = 0;
        for (const program::Unit::Member& member : unit.members) {
            WEFT_CHECK(member.begin % kStateBlock == 0);
            const bool narrow = IsNarrow(member.weight);
            kept.wide_at.push_back(narrow ? SIZE_MAX : wide);
            if (!narrow) wide += static_cast<size_t>(member.weight.shape.Elements(0, 0));
        }
        for (int i = 0; i < 2; ++i) {
            Moment& moment = kept.moments[i];
            const uint8_t zero = codes_[i].Nearest(0);
            moment.codes.assign(static_cast<size_t>(unit.own_count), zero);
            moment.scales.assign(
                static_cast<size_t>((unit.own_count + kStateBlock - 1) / kStateBlock), 0.0f);
            moment.wide.assign(wide, 0.0f);
        }
        kept_.push_back(std::move(kept));
    }
}

// at: in the own part, a multiple of a block.
void Adam8bit::UpdateBlock(Kept& kept, int64_t at, int64_t count,
                           kernels::dense::AdamArgs args) const {
    const auto begin = static_cast<size_t>(at), size = static_cast<size_t>(count);
    const size_t block = begin / kStateBlock;
    float wide[2][kStateBlock];
    for (int i = 0; i < 2; ++i) {
        const Moment& moment = kept.moments[i];
        Widen(codes_[i], std::span(moment.codes).subspan(begin, size), moment.scales[block],
              std::span(wide[i]).first(size));
    }
    args.m = wide[0];
    args.v = wide[1];
    args.count = count;
    context_.training.dense().adam(args, 0, 1);
    for (int i = 0; i < 2; ++i) {
        Moment& moment = kept.moments[i];
        moment.scales[block] = Narrow(codes_[i], std::span(wide[i]).first(size),
                                      std::span(moment.codes).subspan(begin, size));
    }
}

void Adam8bit::UpdatePart(size_t index, const UpdateStep& step) {
    OwnPart& part = context_.state.parts()[index];
    Kept& kept = kept_[index];
    context_.training.InParts([&](int thread, int threads) {
        VisitPieces(part, Extent::kOwn, [&](const MemberPiece& piece) {
            const PieceView view = ViewOf(context_.state, part, piece);
            kernels::dense::AdamArgs args = AdamNumbers(options_, step, piece.is_matrix());
            args.g_type = view.gradient_type;
            args.copy_type = view.copy_type;
            const auto from = [&](int64_t element) {
                args.p = view.weights + element;
                args.g = view.gradients + element * ElementBytes(view.gradient_type);
                args.copy = view.copy == nullptr
                                ? nullptr
                                : static_cast<std::byte*>(view.copy) +
                                      element * ElementBytes(view.copy_type);
            };
            if (const size_t wide = WideAt(kept, part, piece); wide != SIZE_MAX) {
                from(0);
                args.m = kept.moments[0].wide.data() + wide;
                args.v = kept.moments[1].wide.data() + wide;
                args.count = view.count;
                context_.training.dense().adam(args, thread, threads);
                return;
            }
            const int64_t blocks = (view.count + kStateBlock - 1) / kStateBlock;
            const kernels::Range share = kernels::Share(blocks, 1, thread, threads);
            for (int64_t block = share.begin; block < share.end; ++block) {
                const int64_t begin = block * kStateBlock;
                from(begin);
                UpdateBlock(kept, piece.own + begin, std::min(kStateBlock, view.count - begin),
                            args);
            }
        });
    });
}

std::vector<Array> Adam8bit::Arrays(const std::set<std::string, std::less<>>& tensors) const {
    std::vector<Array> arrays;
    for (const std::string& name : tensors) {
        for (const char* kind : kAdamKinds) {
            arrays.push_back(ArrayOf(*context_.source.FindTensor(name), kind));
        }
    }
    return arrays;
}

KeptPiece Adam8bit::NarrowPiece(size_t index, const MemberPiece& piece, int i) {
    const int64_t own = piece.own;
    KeptPiece made;
    made.widen = [this, index, own, i](int64_t begin, std::span<float> out) {
        const Moment& moment = kept_[index].moments[i];
        for (size_t e = 0; e < out.size(); ++e) {
            const auto at = static_cast<size_t>(own + begin) + e;
            out[e] = codes_[i].value(moment.codes[at]) * moment.scales[at / kStateBlock];
        }
    };
    made.take = [this, index, own, i](int64_t begin, std::span<const float> values) {
        Moment& moment = kept_[index].moments[i];
        for (size_t e = 0; e < values.size(); e += kStateBlock) {
            const auto at = static_cast<size_t>(own + begin) + e;
            const size_t count = std::min<size_t>(kStateBlock, values.size() - e);
            moment.scales[at / kStateBlock] = Narrow(codes_[i], values.subspan(e, count),
                                                     std::span(moment.codes).subspan(at, count));
        }
    };
    return made;
}

void Adam8bit::VisitKeptPieces(Extent extent, const VisitKept& visit) {
    static_assert(kKeptGrain % kStateBlock == 0);
    for (size_t index = 0; index < kept_.size(); ++index) {
        const OwnPart& part = context_.state.parts()[index];
        VisitPieces(part, extent, [&](const MemberPiece& piece) {
            const model_files::TensorInfo& tensor = *context_.source.FindTensor(piece.tensor());
            const size_t wide = WideAt(kept_[index], part, piece);
            for (int i = 0; i < 2; ++i) {
                KeptPiece made;
                if (wide == SIZE_MAX) {
                    made = NarrowPiece(index, piece, i);
                } else {
                    made.floats = std::span(kept_[index].moments[i].wide)
                                      .subspan(wide, static_cast<size_t>(piece.region.elements()));
                }
                made.array = ArrayOf(tensor, kAdamKinds[i]);
                made.region = piece.region;
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
