// CheckShapes accepts every Program that this test builds, and names the fault of a broken one.
#include <gtest/gtest.h>

#include <algorithm>

#include "program/differentiate.h"
#include "support/tiny_model.h"

namespace weft::program {
namespace {

using support::TinyHyper;
using support::TinySource;

// Forward with caches, and forward and backward without, of every architecture, alone and cut.
std::vector<Program> ManyPrograms() {
    std::vector<Program> programs;
    for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
        const model::Hyper hyper = TinyHyper(architecture, true);
        const TinySource source(hyper);
        for (const model::Layout& layout :
             {model::Layout{}, {3, 1, {}, {}}, {1, 2, {}, {}}, {2, 2, {}, {}}}) {
            for (Program& program : support::Build(hyper, source, layout, {DType::kF16, true})) {
                programs.push_back(std::move(program));
            }
            for (Program& program : support::Build(hyper, source, layout, {DType::kF32, false})) {
                auto back = Differentiate(program, {program.Find("logits"), {}});
                EXPECT_TRUE(back.ok()) << back.error().message;
                programs.push_back(std::move(back->program));
            }
        }
    }
    // Programs for inference only, not for training.
    for (const char* architecture : {"gemma2", "gemma4", "olmo2", "phi3"}) {
        model::Hyper hyper = TinyHyper(architecture, true);
        hyper.window = 3;
        hyper.windowed = {true, false};
        hyper.logit_cap = hyper.attention_cap = 30;
        hyper.embedding_scale = 4;
        const TinySource source(hyper);
        for (const model::Layout& layout : {model::Layout{}, {3, 1, {}, {}}, {2, 2, {}, {}}}) {
            for (Program& program : support::Build(hyper, source, layout, {DType::kF16, true})) {
                programs.push_back(std::move(program));
            }
        }
    }
    return programs;
}

bool Passes(const Program& program) {
    return CheckShapes(program).ok();
}

TEST(CheckShapes, TakesEveryProgramThatIsBuilt) {
    for (const Program& program : ManyPrograms()) {
        const Status status = CheckShapes(program);
        EXPECT_TRUE(status.ok()) << status.error().message;
    }
}

TEST(CheckShapes, RefusesEveryOpWithAnOperandMissingOrTooMuch) {
    for (const Program& good : ManyPrograms()) {
        for (size_t i = 0; i < good.ops.size(); ++i) {
            for (std::vector<ValueId> Op::*list : {&Op::inputs, &Op::outputs}) {
                Program more = good;
                (more.ops[i].*list).push_back(0);
                EXPECT_FALSE(Passes(more)) << "op " << i;
                if ((good.ops[i].*list).empty()) continue;
                Program less = good;
                (less.ops[i].*list).pop_back();
                const bool bias = list == &Op::inputs && good.ops[i].kind() == OpKind::kMatMul &&
                                  good.ops[i].inputs.size() == 3;
                EXPECT_EQ(Passes(less), bias) << "op " << i << OpName(good.ops[i].kind());
            }
        }
    }
}

TEST(CheckShapes, RefusesOperandsThatDoNotExist) {
    const Program good = ManyPrograms()[0];
    for (size_t i = 0; i < good.ops.size(); ++i) {
        for (const ValueId id : {kNoValue, static_cast<ValueId>(good.values.size())}) {
            Program broken = good;
            broken.ops[i].inputs[0] = id;
            EXPECT_FALSE(Passes(broken));
        }
    }
}

// If a dimension changes, some op that uses the value is invalid. Exceptions: values that no op or
// only a recv uses, values that are only sliced, and the rows of a table that is only looked up.
TEST(CheckShapes, RefusesAnyOtherDimension) {
    for (const Program& good : ManyPrograms()) {
        for (size_t i = 0; i < good.values.size(); ++i) {
            std::vector<OpKind> users;
            for (const Op& op : good.ops) {
                const auto id = static_cast<ValueId>(i);
                if (std::ranges::count(op.inputs, id) + std::ranges::count(op.outputs, id) > 0) {
                    users.push_back(op.kind());
                }
            }
            const auto only = [&](std::initializer_list<OpKind> kinds) {
                return std::ranges::all_of(
                    users, [&](OpKind kind) { return std::ranges::count(kinds, kind) > 0; });
            };
            if (only({OpKind::kRecv}) || only({OpKind::kSliceColumns})) continue;
            const bool table = only({OpKind::kEmbedding, OpKind::kEmbeddingGrad});
            for (int dim = table ? 1 : 0; dim < good.values[i].shape.rank; ++dim) {
                Program broken = good;
                broken.values[i].shape.dims[static_cast<size_t>(dim)] += 1000;
                EXPECT_FALSE(Passes(broken)) << good.values[i].name << " dim " << dim;
            }
        }
    }
}

TEST(CheckShapes, RefusesAValueReadBeforeItIsWritten) {
    for (const Program& good : ManyPrograms()) {
        for (size_t i = 0; i + 1 < good.ops.size(); ++i) {
            const auto& made = good.ops[i].outputs;
            const auto& read = good.ops[i + 1].inputs;
            const bool chained = std::ranges::any_of(made, [&](ValueId id) {
                const bool adds = std::ranges::count(good.ops[i].inputs, id) > 0;
                return good.value(id).storage == Storage::kActivation && !adds &&
                       std::ranges::count(read, id) > 0;
            });
            if (!chained) continue;
            Program broken = good;
            std::swap(broken.ops[i], broken.ops[i + 1]);
            EXPECT_FALSE(Passes(broken)) << "ops " << i << " and " << i + 1;
        }
    }
}

void ExpectNames(const Program& program, const std::vector<std::string>& words) {
    const Status status = CheckShapes(program);
    ASSERT_FALSE(status.ok());
    for (const std::string& word : words) {
        EXPECT_NE(status.error().message.find(word), std::string::npos)
            << "no '" << word << "' in: " << status.error().message;
    }
}

TEST(CheckShapes, NamesOpKindAndValue) {
    const Program good = ManyPrograms()[0];
    const auto op_of = [&](OpKind kind) {
        return static_cast<size_t>(std::ranges::find(good.ops, kind, &Op::kind) - good.ops.begin());
    };
    const size_t norm = op_of(OpKind::kRmsNorm), attention = op_of(OpKind::kAttention);

    Program broken = good;
    broken.ops[norm].attributes = RmsNorm{1e-5f, 7};
    ExpectNames(broken, {fmt::format("op {} (rms_norm)", norm), "do not fit", "embedded [T, 18]",
                         "blk.0.attn_norm.weight [18]"});
    broken = good;
    broken.ops[attention].attributes.If<Attention>()->first_head = 1;
    ExpectNames(broken, {"(attention)", "l0.attn_q"});
    broken = good;
    broken.ops[norm].outputs = broken.ops[norm].inputs;
    broken.ops[norm].outputs.resize(1);
    ExpectNames(broken, {"embedded is written twice"});
    broken = good;
    broken.ops[norm].outputs[0] = good.Find("token_embd.weight");
    ExpectNames(broken, {"token_embd.weight is written, but it is not an activation"});
    broken = good;
    broken.values[1].name = broken.values[0].name;
    ExpectNames(broken, {"two values are named", broken.values[0].name});
    broken = good;
    broken.values[static_cast<size_t>(good.Find("blk.0.attn_q.weight"))].dtype = DType::kQ4_0;
    ExpectNames(broken, {"blk.0.attn_q.weight", "rows of 18 are not whole Q4_0 blocks"});
}

}  // namespace
}  // namespace weft::program
