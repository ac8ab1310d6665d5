// A tensor that no rank reads would change the results: every family refuses it by name, in every
// layout, and needs all tensors that it accepts.
#include <gtest/gtest.h>

#include "model/model.h"
#include "model_files/source_over.h"
#include "support/golden_models.h"
#include "support/hf_folder.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

// A model with one more tensor.
class WithTensor final : public model_files::SourceOver {
  public:
    WithTensor(const model_files::ModelSource& source, const std::string& tensor)
        : SourceOver(source) {
        AddMatrix(tensor, DType::kF32, 1, 144);
    }

  private:
    Status ReadOwn(size_t, int64_t, int64_t, int64_t, int64_t, std::span<std::byte> out,
                   uint64_t*) const override {
        std::ranges::fill(out, std::byte{0});
        return {};
    }
};

// The error of the first rank that has one; empty: all ranks' Programs are built.
std::string BuildError(const model_files::ModelSource& source, const model::Layout& layout) {
    const auto hyper = model::ReadHyper(source);
    if (!hyper.ok()) return hyper.error().message;
    const auto plan = model::PlanShards(*hyper, source, layout);
    if (!plan.ok()) return plan.error().message;
    for (const model::Shard& shard : plan->shards) {
        const auto program = model::BuildProgram(*hyper, shard, source, {});
        if (!program.ok()) return program.error().message;
    }
    return "";
}

void ExpectRefusals(const model_files::ModelSource& source) {
    const int64_t layers = model::ReadHyper(source).value().layers;
    for (const auto& [tp, pp] : {std::pair{1, 1}, std::pair{1, 2}, std::pair{2, 1}}) {
        model::Layout layout;
        layout.tp = tp;
        layout.pp = pp;
        const model::Hyper hyper = model::ReadHyper(source).value();
        if (!model::PlanShards(hyper, source, layout).ok()) continue;  // it cannot be divided so
        ASSERT_EQ(BuildError(source, layout), "");
        std::vector<std::string> others = {
            "token_embd.bias",      "cls.output.weight",
            "dense_2.weight",       "blk.weight",
            "blk.-1.attn_q.weight", "blk.0.attn_q.other",
            "rope_freqs.bias",      fmt::format("blk.{}.attn_norm.weight", layers + 3)};
        if (source.FindTensor("token_embd_norm.weight") == nullptr) {
            others.emplace_back("token_embd_norm.weight");
        }
        if (!hyper.end_biases) others.emplace_back("output_norm.bias");
        if (hyper.recurrent.heads == 0) others.emplace_back("blk.0.ssm_conv1d.weight");
        for (const std::string& tensor : others) {
            const std::string said = BuildError(WithTensor(source, tensor), layout);
            EXPECT_NE(said.find("tensor " + tensor + " "), std::string::npos)
                << tensor << ", tp " << tp << ", pp " << pp << ": " << said;
        }
        for (const char* tensor : {"v.blk.0.attn_q.weight", "mm.0.weight", "a.conv1d.weight"}) {
            EXPECT_EQ(BuildError(WithTensor(source, tensor), layout), "");
        }
    }
}

TEST(UnreadTensors, AreRefusedByName) {
    const test::TempDir dir;
    for (const GoldenCase& each : GoldenCases()) {
        SCOPED_TRACE(each.name);
        WriteGolden(each, dir / "model.gguf");
        ExpectRefusals(*model_files::OpenModel(dir / "model.gguf").value());
    }
    for (const char* folder : {"/families", "/hf", "/draft_heads"}) {
        for (const std::string& name : CasesIn(folder)) {
            SCOPED_TRACE(name);
            const HfGolden golden(TestData(folder + ("/" + name) + ".safetensors"));
            if (!golden.Has(name + "/tokens")) continue;
            golden.Write(name, dir / name);
            ExpectRefusals(*model_files::OpenModel(dir / name).value());
        }
    }
}

}  // namespace
}  // namespace weft::support
