// PlanArena over random Programs and real ones: values that live at the same time do not overlap.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "program/arena.h"
#include "program/differentiate.h"
#include "support/tiny_model.h"

namespace weft::program {
namespace {

constexpr int64_t kTokenCount = 7, kOutputCount = 3;

int64_t BytesOf(const Program& program, ValueId id) {
    const Value& value = program.value(id);
    return RowBytes(value.dtype, value.shape.Elements(kTokenCount, kOutputCount));
}

// Values that must hold their bytes while op `at` runs: written by it or before, read by it or
// after, or kept. Written apart from arena.cc.
std::vector<ValueId> LiveAt(const Program& program, size_t at, const std::vector<ValueId>& keep) {
    std::vector<bool> written(program.values.size(), false), wanted(program.values.size(), false);
    for (size_t i = 0; i < program.ops.size(); ++i) {
        const Op& op = program.ops[i];
        for (ValueId id : op.outputs) {
            if (i <= at) written[static_cast<size_t>(id)] = true;
            if (i >= at) wanted[static_cast<size_t>(id)] = true;
        }
        for (ValueId id : op.inputs) {
            if (i >= at) wanted[static_cast<size_t>(id)] = true;
        }
    }
    for (ValueId id : keep) wanted[static_cast<size_t>(id)] = true;
    std::vector<ValueId> live;
    for (size_t i = 0; i < program.values.size(); ++i) {
        if (program.values[i].storage != Storage::kActivation) continue;
        if (written[i] && wanted[i]) live.push_back(static_cast<ValueId>(i));
    }
    return live;
}

void ExpectGoodPlan(const Program& program, const std::vector<ValueId>& keep) {
    const ArenaPlan plan = PlanArena(program, kTokenCount, kOutputCount, keep);
    ASSERT_EQ(plan.offsets.size(), program.values.size());
    int64_t sum = 0;
    for (size_t i = 0; i < program.values.size(); ++i) {
        const auto id = static_cast<ValueId>(i);
        if (program.values[i].storage != Storage::kActivation) {
            EXPECT_EQ(plan.offsets[i], -1);
        } else if (plan.offsets[i] >= 0) {
            EXPECT_EQ(plan.offsets[i] % 64, 0);
            EXPECT_LE(plan.offsets[i] + BytesOf(program, id), plan.size_bytes);
            sum += (BytesOf(program, id) + 63) / 64 * 64;
        }
    }
    EXPECT_LE(plan.size_bytes, sum);
    for (size_t at = 0; at < program.ops.size(); ++at) {
        std::vector<std::pair<int64_t, int64_t>> spans;
        for (ValueId id : LiveAt(program, at, keep)) {
            const int64_t begin = plan.offsets[static_cast<size_t>(id)];
            ASSERT_GE(begin, 0) << program.value(id).name << " has no place";
            spans.emplace_back(begin, begin + BytesOf(program, id));
        }
        std::ranges::sort(spans);
        for (size_t i = 1; i < spans.size(); ++i) {
            ASSERT_LE(spans[i - 1].second, spans[i].first) << "overlap at op " << at;
        }
    }
}

// Ops over random operands; PlanArena does not care whether they fit.
Program RandomProgram(std::mt19937& random, std::vector<ValueId>& keep) {
    const auto pick = [&](int64_t least, int64_t most) {
        return std::uniform_int_distribution<int64_t>(least, most)(random);
    };
    Program program;
    std::vector<ValueId> readable;
    for (int i = 0; i < 3; ++i) {
        Value value;
        value.name = fmt::format("w{}", i);
        value.shape = {pick(1, 50), 8};
        value.storage = i == 0 ? Storage::kState : Storage::kWeight;
        readable.push_back(program.AddValue(value));
    }
    const int64_t ops = pick(1, 60);
    for (int64_t i = 0; i < ops; ++i) {
        std::vector<ValueId> inputs;
        for (int64_t n = pick(0, 3); n > 0; --n) {
            // Mostly what was made last, now and then something old.
            const int64_t back =
                pick(0, 3) > 0 ? std::min<int64_t>(5, std::ssize(readable)) : std::ssize(readable);
            inputs.push_back(readable[readable.size() - static_cast<size_t>(pick(1, back))]);
        }
        Op op{AttentionGrad{}, inputs, {}};
        for (int64_t n = pick(1, 3); n > 0; --n) {
            Value value;
            value.name = fmt::format("v{}", program.values.size());
            const int64_t rows[] = {kTokens, kOutputs, pick(1, 20)};
            value.shape = {rows[pick(0, 2)], pick(1, 100)};
            op.outputs.push_back(program.AddValue(value));
        }
        readable.insert(readable.end(), op.outputs.begin(), op.outputs.end());
        if (pick(0, 9) == 0) keep.push_back(op.outputs[0]);
        program.ops.push_back(std::move(op));
    }
    return program;
}

TEST(PlanArena, RandomPrograms) {
    for (uint32_t seed = 0; seed < 300; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        std::mt19937 random(seed);
        std::vector<ValueId> keep;
        const Program program = RandomProgram(random, keep);
        ExpectGoodPlan(program, keep);
    }
}

// The offset of each value by definition: the largest value first, each at the lowest offset that
// no earlier one with a common op has.
TEST(PlanArena, IsGreedyBySize) {
    for (uint32_t seed = 0; seed < 100; ++seed) {
        std::mt19937 random(seed);
        std::vector<ValueId> keep;
        const Program program = RandomProgram(random, keep);
        const ArenaPlan plan = PlanArena(program, kTokenCount, kOutputCount, keep);
        std::map<ValueId, std::pair<size_t, size_t>> lives;
        for (size_t at = 0; at < program.ops.size(); ++at) {
            for (const ValueId id : LiveAt(program, at, keep)) {
                lives.try_emplace(id, at, at).first->second.second = at;
            }
        }
        for (const ValueId id : keep) lives.at(id).second = program.ops.size();
        const auto bytes = [&](ValueId id) { return (BytesOf(program, id) + 63) / 64 * 64; };
        std::vector<ValueId> order;
        for (const auto& [id, life] : lives) order.push_back(id);
        std::ranges::stable_sort(order, std::greater<>{}, bytes);
        for (size_t i = 0; i < order.size(); ++i) {
            const auto [first, last] = lives.at(order[i]);
            std::vector<std::pair<int64_t, int64_t>> used;
            for (size_t j = 0; j < i; ++j) {
                const auto [other_first, other_last] = lives.at(order[j]);
                const int64_t begin = plan.offsets[static_cast<size_t>(order[j])];
                if (first > other_last || other_first > last) continue;
                used.emplace_back(begin, begin + bytes(order[j]));
            }
            std::ranges::sort(used);
            int64_t offset = 0;
            for (const auto& [begin, end] : used) {
                if (offset + bytes(order[i]) <= begin) break;
                offset = std::max(offset, end);
            }
            EXPECT_EQ(plan.offsets[static_cast<size_t>(order[i])], offset) << "seed " << seed;
        }
    }
}

TEST(PlanArena, ForwardAndBackwardOfAModel) {
    const model::Hyper hyper = support::TinyHyper("qwen3", true);
    const support::TinySource source(hyper);
    for (const Program& forward : support::Build(hyper, source, {2, 1, {}, {}}, {})) {
        ExpectGoodPlan(forward, {forward.Find("logits")});
        const auto back = Differentiate(forward, {forward.Find("logits"), {}});
        ASSERT_TRUE(back.ok());
        ExpectGoodPlan(back->program, {forward.Find("logits")});
    }
}

// Runs a program's rows in two halves, one sum apart, as backends do, and records which value owns
// each byte of the arena. A sum in flight writes its output at its start and still reads its input
// at its end.
class HalvesRun {
  public:
    HalvesRun(const Program& program, const ArenaPlan& plan)
        : program_(program), plan_(plan), owners_(static_cast<size_t>(plan.size_bytes), kNoValue) {}

    void Run() {
        std::vector<size_t> begins = {0};
        for (size_t i = 0; i < program_.ops.size(); ++i) {
            if (IsSum(i)) begins.push_back(i + 1);
        }
        begins.push_back(program_.ops.size());
        const size_t segments = begins.size() - 1;
        for (size_t item = 0; item < 2 * segments; ++item) {
            const size_t segment = item / 2;
            const int64_t half = static_cast<int64_t>(item % 2);
            for (size_t op = begins[segment]; op < begins[segment + 1] && !IsSum(op); ++op) {
                for (ValueId id : program_.ops[op].inputs) Reads(id, half);
                for (ValueId id : program_.ops[op].outputs) Writes(id, half);
            }
            FinishSum();
            if (segment + 1 == segments) continue;
            sum_ = begins[segment + 1] - 1;
            sum_half_ = half;
            Writes(program_.ops[sum_].outputs[0], half);
        }
    }
    int64_t wrong() const { return wrong_; }

  private:
    bool IsSum(size_t op) const { return program_.ops[op].kind() == OpKind::kAllReduce; }
    void FinishSum() {
        if (sum_ == SIZE_MAX) return;
        Reads(program_.ops[sum_].inputs[0], sum_half_);
        Reads(program_.ops[sum_].outputs[0], sum_half_);
        sum_ = SIZE_MAX;
    }
    // The bytes of one half's row; rows of outputs are computed last, and belong to half 0.
    template <typename Visit>
    void Bytes(ValueId id, int64_t half, const Visit& visit) {
        const Value& value = program_.value(id);
        if (value.storage != Storage::kActivation) return;
        const int64_t bytes = RowBytes(value.dtype, value.shape.Elements(1, 1));
        int64_t at = plan_.offsets[static_cast<size_t>(id)] + half * bytes;
        for (int64_t i = 0; i < bytes; ++i) visit(owners_[static_cast<size_t>(at + i)]);
    }
    void Writes(ValueId id, int64_t half) {
        Bytes(id, half, [&](ValueId& owner) { owner = id; });
    }
    void Reads(ValueId id, int64_t half) {
        Bytes(id, half, [&](ValueId& owner) { wrong_ += owner != id; });
    }

    const Program& program_;
    const ArenaPlan& plan_;
    std::vector<ValueId> owners_;
    size_t sum_ = SIZE_MAX;
    int64_t sum_half_ = 0;
    int64_t wrong_ = 0;
};

TEST(PlanArena, HalvesOfTheRowsDoNotOverwriteEachOther) {
    for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
        const model::Hyper hyper = support::TinyHyper(architecture, true);
        const support::TinySource source(hyper);
        for (const Program& program : support::Build(hyper, source, {2, 1, {}, {}}, {})) {
            const std::vector<ValueId> keep = {program.Find("logits")};
            for (bool halves : {false, true}) {
                const ArenaPlan plan = halves ? PlanArenaInHalves(program, 2, 2, keep)
                                              : PlanArena(program, 2, 2, keep);
                HalvesRun run(program, plan);
                run.Run();
                EXPECT_EQ(run.wrong() == 0, halves) << architecture;
            }
        }
    }
}

// The forward pass frees values that it no longer needs: thirty layers take the memory of two.
TEST(PlanArena, DoesNotGrowWithLayers) {
    model::Hyper hyper = support::SmolLm2Hyper();
    const auto size = [&](int64_t layers) {
        hyper.layers = layers;
        const support::TinySource source(hyper, DType::kQ4_1);
        const Program program = support::Build(hyper, source, {}, {})[0];
        return PlanArena(program, 512, 1, {program.Find("logits")}).size_bytes;
    };
    EXPECT_EQ(size(30), size(2));
    // At least what SwiGLU holds: the residual stream, gate, up and its output.
    EXPECT_GE(size(2), 512 * 4 * (576 + 3 * 1536));
    EXPECT_LE(size(2), 512 * 4 * (576 + 3 * 1536) * 5 / 4);
}

}  // namespace
}  // namespace weft::program
