#include "backend/cpu/training_overlap.h"

#include <algorithm>
#include <span>

#include "program/timeline.h"

namespace weft::backend {
namespace {

using program::Op;
using program::ValueId;

struct Bytes {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
    bool Overlaps(const Bytes& other) const { return begin < other.end && other.begin < end; }
};

class Planner {
  public:
    Planner(const program::Program& program, const TrainingMemory& memory, int64_t tokens,
            int64_t outputs)
        : program_(program), memory_(memory), tokens_(tokens), outputs_(outputs) {}

    std::vector<size_t> Run() {
        std::vector<size_t> waits(program_.ops.size(), 0);
        for (size_t i = 0; i < program_.ops.size(); ++i) {
            const Op& op = program_.ops[i];
            const std::vector<Bytes> touched = BytesOf(op);
            if (program::RunsBeside(op.kind())) {
                beside_.push_back({i + 1, touched});
            } else {
                waits[i] = LastOver(touched);
            }
        }
        return waits;
    }

  private:
    struct Beside {
        size_t number = 0;
        std::vector<Bytes> touched;
    };

    // What it reads and what it writes. (What runs beside reads weights, and writes all else that
    // it touches; no op writes weights.)
    std::vector<Bytes> BytesOf(const Op& op) const {
        std::vector<Bytes> all;
        const auto add = [&](ValueId id) {
            const program::Value& value = program_.value(id);
            const std::byte* begin = memory_.At(id, 0);
            if (begin == nullptr || value.storage == program::Storage::kWeight) return;
            const int64_t elements = value.shape.Elements(tokens_, outputs_);
            all.push_back({begin, begin + RowBytes(value.dtype, elements)});
        };
        for (const ValueId id : op.inputs) add(id);
        for (const ValueId id : op.outputs) add(id);
        return all;
    }

    size_t LastOver(std::span<const Bytes> touched) const {
        for (auto beside = beside_.rbegin(); beside != beside_.rend(); ++beside) {
            for (const Bytes& bytes : touched) {
                const bool overlaps = std::ranges::any_of(
                    beside->touched, [&](const Bytes& other) { return bytes.Overlaps(other); });
                if (overlaps) return beside->number;
            }
        }
        return 0;
    }

    const program::Program& program_;
    const TrainingMemory& memory_;
    const int64_t tokens_, outputs_;
    std::vector<Beside> beside_;
};

}  // namespace

std::vector<size_t> PlanWaits(const program::Program& program, const TrainingMemory& memory,
                              int64_t max_tokens, int64_t max_outputs) {
    return Planner(program, memory, max_tokens, max_outputs).Run();
}

}  // namespace weft::backend
