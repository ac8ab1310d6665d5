#include "backend/cpu/training_memory.h"

#include "base/check.h"
#include "program/arena.h"

namespace weft::backend {
namespace {

constexpr int64_t kLineAlign = 64;

int64_t AlignUp(int64_t bytes) {
    return (bytes + kLineAlign - 1) / kLineAlign * kLineAlign;
}

int64_t SizeBytes(const program::Value& value, int64_t tokens, int64_t outputs) {
    return AlignUp(RowBytes(value.dtype, value.shape.Elements(tokens, outputs)));
}

}  // namespace

Status TrainingMemory::Plan(const program::ChunkedProgram& chunked, int64_t max_tokens,
                            int64_t max_outputs, int slots, bool overlap) {
    const program::Program& program = chunked.program;
    places_.assign(program.values.size(), {});
    int64_t weights = 0, gradients = 0, optimizer = 0, inputs = 0;
    const auto take = [&](size_t i, Region region, int64_t& size) {
        places_[i] = {region, size};
        size += SizeBytes(program.values[i], max_tokens, max_outputs);
    };
    for (size_t i = 0; i < program.values.size(); ++i) {
        switch (program.values[i].storage) {
            case program::Storage::kWeight: take(i, Region::kWeights, weights); break;
            case program::Storage::kGradient: take(i, Region::kGradients, gradients); break;
            case program::Storage::kOptimizer: take(i, Region::kOptimizer, optimizer); break;
            case program::Storage::kInput: take(i, Region::kInputs, inputs); break;
            case program::Storage::kActivation:
            case program::Storage::kView:
            case program::Storage::kState: break;
        }
    }
    WEFT_ASSIGN(weights_, Memory::Allocate(weights, "weights"));
    WEFT_ASSIGN(gradients_, Memory::Allocate(gradients, "gradients"));
    WEFT_ASSIGN(optimizer_, Memory::Allocate(optimizer, "the optimizer's state"));
    WEFT_ASSIGN(inputs_, Memory::Allocate(inputs * slots, "inputs"));
    inputs_stride_ = inputs;
    WEFT_TRY(PlanArenas(chunked, max_tokens, max_outputs, slots, overlap));
    for (size_t i = 0; i < program.values.size(); ++i) {
        const program::Value& value = program.values[i];
        if (value.storage != program::Storage::kView) continue;
        places_[i] = places_[static_cast<size_t>(value.base)];
        places_[i].offset += RowBytes(value.dtype, value.base_begin);
    }
    return {};
}

Status TrainingMemory::PlanArenas(const program::ChunkedProgram& chunked, int64_t tokens,
                                  int64_t outputs, int slots, bool overlap) {
    const program::TrainingArenaPlan plan =
        program::PlanTrainingArena(chunked, tokens, outputs, {slots > 1, overlap});
    kept_stride_ = AlignUp(plan.kept.size_bytes);
    WEFT_ASSIGN(kept_, Memory::Allocate(kept_stride_ * slots, "activations"));
    WEFT_ASSIGN(brief_, Memory::Allocate(plan.brief.size_bytes, "activations"));
    for (size_t i = 0; i < places_.size(); ++i) {
        if (plan.kept.offsets[i] >= 0) places_[i] = {Region::kKept, plan.kept.offsets[i]};
        if (plan.brief.offsets[i] >= 0) places_[i] = {Region::kBrief, plan.brief.offsets[i]};
    }
    return {};
}

std::byte* TrainingMemory::At(program::ValueId id, int slot) const {
    const Place& place = places_[static_cast<size_t>(id)];
    switch (place.region) {
        case Region::kNone: return nullptr;
        case Region::kWeights: return weights_.data() + place.offset;
        case Region::kGradients: return gradients_.data() + place.offset;
        case Region::kOptimizer: return optimizer_.data() + place.offset;
        case Region::kKept: return kept_.data() + slot * kept_stride_ + place.offset;
        case Region::kBrief: return brief_.data() + place.offset;
        case Region::kInputs: return inputs_.data() + slot * inputs_stride_ + place.offset;
    }
    WEFT_CHECK(false);
    return nullptr;
}

}  // namespace weft::backend
