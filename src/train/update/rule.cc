#include "train/update/rule.h"

#include <algorithm>

#include "base/check.h"
#include "tensor/dynamic_codes.h"
#include "train/update/kinds.h"

namespace weft::train {
namespace {

using program::Storage;
using program::ValueId;

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

const DynamicCodes& CodesOf(const KeptPiece& piece) {
    return piece.is_signed ? SignedCodes() : UnsignedCodes();
}

// The blocks that have elements [first, first + count) of a value.
std::vector<float> ScalesOf(int64_t first, size_t count) {
    const auto skipped = static_cast<size_t>(first % kStateBlock);
    return std::vector<float>((skipped + count + kStateBlock - 1) / kStateBlock);
}

// Calls f(first element, codes, scale) for each block of elements. first: the place of the first
// one in the value; a piece may begin within a block.
template <typename F>
void ForBlocks(int64_t first, std::span<uint8_t> codes, std::span<float> scales, const F& f) {
    auto skipped = static_cast<size_t>(first % kStateBlock);
    for (size_t at = 0, block = 0; at < codes.size(); ++block, skipped = 0) {
        const size_t count = std::min<size_t>(kStateBlock - skipped, codes.size() - at);
        f(at, codes.subspan(at, count), scales[block]);
        at += count;
    }
}

}  // namespace

Status ReadKeptPiece(const backend::HostSnapshot& training, const KeptPiece& piece, int64_t begin,
                     std::span<float> out) {
    const int64_t first = piece.first + begin;
    if (piece.scales == program::kNoValue) {
        return training.Read(piece.value, first * kFloat, std::as_writable_bytes(out));
    }
    std::vector<uint8_t> codes(out.size());
    std::vector<float> scales = ScalesOf(first, out.size());
    WEFT_TRY(training.Read(piece.value, first, std::as_writable_bytes(std::span(codes))));
    WEFT_TRY(training.Read(piece.scales, first / kStateBlock * kFloat,
                           std::as_writable_bytes(std::span(scales))));
    ForBlocks(first, codes, scales, [&](size_t at, std::span<uint8_t> block, float scale) {
        Widen(CodesOf(piece), block, scale, out.subspan(at, block.size()));
    });
    return {};
}

Status WriteKeptPiece(backend::Executable& training, const KeptPiece& piece, int64_t begin,
                      std::span<const float> values) {
    const int64_t first = piece.first + begin;
    if (piece.scales == program::kNoValue) {
        return training.Write(piece.value, first * kFloat, std::as_bytes(values));
    }
    WEFT_CHECK(first % kStateBlock == 0);  // a block's codes have one scale
    std::vector<uint8_t> codes(values.size());
    std::vector<float> scales = ScalesOf(first, values.size());
    ForBlocks(first, codes, scales, [&](size_t at, std::span<uint8_t> block, float& scale) {
        scale = Narrow(CodesOf(piece), values.subspan(at, block.size()), block);
    });
    WEFT_TRY(training.Write(piece.value, first, std::as_bytes(std::span(codes))));
    return training.Write(piece.scales, first / kStateBlock * kFloat,
                          std::as_bytes(std::span(scales)));
}

ValueId AddKept(program::Program& program, std::string name, DType dtype, int64_t elements) {
    return program.AddValue({std::move(name), dtype, {elements}, Storage::kOptimizer});
}

void AddUpdateOp(program::Program& program, program::OpAttributes attributes, const OwnPart& part,
                 const std::vector<ValueId>& kept) {
    std::vector<ValueId> written = {part.weights};
    written.insert(written.end(), kept.begin(), kept.end());
    if (part.copy != program::kNoValue) written.push_back(part.copy);
    std::vector<ValueId> read = {part.gradients};
    read.insert(read.end(), written.begin(), written.end());
    program.ops.push_back({std::move(attributes), std::move(read), std::move(written)});
}

program::AdamUpdate AdamOf(const UpdateOptions& options) {
    program::AdamUpdate adam;
    adam.beta1 = options.beta1;
    adam.beta2 = options.beta2;
    adam.eps = options.eps;
    (options.kind == UpdateKind::kAdam ? adam.l2 : adam.decay) = options.weight_decay;
    return adam;
}

std::vector<Array> ArraysOf(const UpdateContext& context, std::span<const char* const> kinds,
                            const std::set<std::string, std::less<>>& tensors) {
    std::vector<Array> arrays;
    for (const std::string& name : tensors) {
        for (const char* kind : kinds) {
            arrays.push_back(ArrayOf(*context.source.FindTensor(name), kind));
        }
    }
    return arrays;
}

namespace {

std::unique_ptr<UpdateRule> MakeOwnRule(const UpdateOptions& options,
                                        const UpdateContext& context) {
    switch (options.kind) {
        case UpdateKind::kAdamW:
        case UpdateKind::kAdam:
        case UpdateKind::kSgd:
        case UpdateKind::kLion:
        case UpdateKind::kScheduleFree: return MakeElementRule(options, context);
        case UpdateKind::kMuon: return MakeMuon(options, context);
        case UpdateKind::kAdafactor: return MakeAdafactor(options, context);
        case UpdateKind::kAdam8bit: return MakeAdam8bit(options, context);
    }
    return nullptr;
}

}  // namespace

std::unique_ptr<UpdateRule> MakeUpdateRule(const UpdateOptions& options,
                                           const UpdateContext& context) {
    return WithAverage(MakeOwnRule(options, context), options, context);
}

}  // namespace weft::train
