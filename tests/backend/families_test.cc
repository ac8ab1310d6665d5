// Model families as Hugging Face folders (tests/data/families, made by tools/make_family_golden.py)
// against transformers' logits: Programs in the double-precision interpreter in every layout, then
// kernels of every table, chunks of prompts and expert groups, and the GGUF file made from the
// folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "coll/comm.h"
#include "model_files/hf/folder.h"
#include "program/sharding.h"
#include "quantize/quantize.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/interpreter.h"
#include "support/loaded_rank.h"
#include "support/nightly.h"
#include "support/ranks.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

using program::Storage;
using program::ValueId;

class FamilyModels : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        const HfGolden golden(TestData("/families/" + GetParam() + ".safetensors"));
        golden.Write(GetParam(), dir_ / "model");
        WriteText(dir_ / "model/tokenizer.json", SmallTokenizer());
        auto source = model_files::hf::OpenFolder(dir_ / "model");
        ASSERT_TRUE(source.ok()) << source.error().message;
        source_ = std::move(*source);
        const auto hyper = model::ReadHyper(*source_);
        ASSERT_TRUE(hyper.ok()) << hyper.error().message;
        hyper_ = *hyper;
        tokens_ = golden.Tokens(GetParam());
        expected_ = golden.Floats(GetParam() + "/logits");
    }

    // Spreads layouts over the families of the daily suite.
    static size_t Turn() { return std::hash<std::string>{}(GetParam()); }

    // Distance of each row of logits from transformers' row, relative to its length.
    template <typename Real>
    std::vector<double> Errors(const std::vector<Real>& logits) const {
        EXPECT_EQ(logits.size(), expected_.size());
        std::vector<double> errors(tokens_.size(), INFINITY);
        const size_t vocab = expected_.size() / tokens_.size();
        for (size_t row = 0; row < errors.size() && logits.size() == expected_.size(); ++row) {
            double error = 0, size = 0;
            for (size_t i = row * vocab; i < (row + 1) * vocab; ++i) {
                error += std::pow(double{logits[i]} - double{expected_[i]}, 2);
                size += std::pow(double{expected_[i]}, 2);
            }
            errors[row] = std::sqrt(error / size);
        }
        return errors;
    }
    // Number of rows farther than `bound`; NaN counts.
    template <typename Real>
    int64_t Far(const std::vector<Real>& logits, double bound) const {
        return std::ranges::count_if(Errors(logits), [&](double e) { return !(e <= bound); });
    }

    template <typename Real>
    double Most(const std::vector<Real>& logits) const {
        return std::ranges::max(Errors(logits));
    }

    std::vector<double> Read(const program::Value& value) const {
        const bool vector = value.shape.rank == 1;
        const int64_t rows =
            value.shape.rank == 3 ? value.shape[0] * value.shape[1] : value.shape[0];
        const int64_t cols = vector ? 1 : value.shape[value.shape.rank - 1];
        const int64_t step = value.shape.rank == 3 ? value.shape[1] : rows;
        std::vector<float> floats(static_cast<size_t>(rows * cols));
        const bool numbers = value.dtype == DType::kI32;
        EXPECT_TRUE(numbers || value.dtype == DType::kF32) << value.name;
        for (int64_t row = 0; row < rows; row += step) {
            const auto out = std::as_writable_bytes(std::span(floats))
                                 .subspan(static_cast<size_t>(row * cols) * sizeof(float),
                                          static_cast<size_t>(step * cols) * sizeof(float));
            EXPECT_TRUE(model::ReadWeight(*source_, value, row, step, out, nullptr).ok());
        }
        if (numbers) {
            std::vector<int32_t> ints(floats.size());
            std::memcpy(ints.data(), floats.data(), ints.size() * sizeof(int32_t));
            return {ints.begin(), ints.end()};
        }
        return {floats.begin(), floats.end()};
    }

    // Tensor ranks have whole groups of Mamba-2's heads.
    int64_t MostRanks() const {
        const model::Recurrent& r = hyper_.recurrent;
        return r.whole_groups && r.key_heads > 1 ? r.key_heads : 64;
    }
    // A value that is not cut has the columns that it has on one rank.
    void CheckColumns(const program::Program& program) const {
        std::map<std::string, int64_t> widths;
        const auto of_one = Build(hyper_, *source_, {}, {});
        for (const program::Value& value : of_one.at(0).values) {
            if (value.shape.rank == 2) widths[value.name] = value.shape[1];
        }
        const std::vector<program::Columns> columns = program::PlaceColumns(program);
        for (const program::Op& op : program.ops) {
            if (op.outputs.empty()) continue;
            const program::Value& value = program.value(op.outputs[0]);
            const auto width = widths.find(value.name);
            if (width == widths.end() || value.shape.rank != 2) continue;
            if (columns[static_cast<size_t>(op.outputs[0])].cut) continue;
            EXPECT_EQ(value.shape[1], width->second) << value.name;
        }
    }

    void CheckPrograms(const model::Layout& layout) {
        SCOPED_TRACE(fmt::format("tp {} pp {}", layout.tp, layout.pp));
        model::BuildOptions options;
        World<double> world(Build(hyper_, *source_, layout, options), layout.tp);
        ASSERT_EQ(world.size(), static_cast<size_t>(layout.tp * layout.pp));
        for (size_t rank = 0; rank < world.size(); ++rank) {
            const program::Program& program = world.program(rank);
            for (size_t i = 0; i < program.values.size(); ++i) {
                const program::Value& value = program.values[i];
                std::vector<double>& to = world.at(rank, static_cast<ValueId>(i));
                if (value.storage == Storage::kWeight) to = Read(value);
                if (value.name == "tokens") to.assign(tokens_.begin(), tokens_.end());
                if (value.name != "positions" && value.name != "output_rows") continue;
                for (size_t row = 0; row < tokens_.size(); ++row) {
                    to.push_back(static_cast<double>(row));
                }
            }
        }
        if (layout.pp == 1) {
            for (size_t rank = 0; rank < world.size(); ++rank) CheckColumns(world.program(rank));
        }
        const auto rows = static_cast<int32_t>(tokens_.size());
        ASSERT_EQ(world.Run(rows, rows, {{0, rows, 0, {}}}), "");
        const ValueId id = world.program(0).Find("logits");
        ASSERT_NE(id, program::kNoValue);
        // transformers computes RoPE, norms and gates in float32.
        EXPECT_EQ(Far(world.at(0, id), 4e-6), 0) << Most(world.at(0, id));
    }

    // Makes a GGUF file of the folder and uses it as the source.
    void Quantize(const std::string& type) {
        quantize::QuantizeOptions options;
        options.type = quantize::FindFileType(type).value();
        const auto plan = quantize::PlanQuantize(*source_, options);
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        const std::string path = dir_ / "model.gguf";
        const auto written = quantize::WriteQuantized(*source_, *plan, path, {});
        ASSERT_TRUE(written.ok()) << written.error().message;
        source_ = model_files::OpenModel(path).value();
        const auto hyper = model::ReadHyper(*source_);
        ASSERT_TRUE(hyper.ok()) << hyper.error().message;
        hyper_ = *hyper;
    }

    std::vector<program::Program> Programs(const model::Layout& layout, DType kv) const {
        model::BuildOptions build;
        build.kv_dtype = kv;
        return Build(hyper_, *source_, layout, build);
    }
    std::vector<float> Logits(CpuLevel level, DType kv, size_t piece) const {
        return LoadedRank(Programs({}, kv).at(0), *source_, {1, {}, true, level})
            .Logits(tokens_, piece);
    }
    // Logits of each tensor rank.
    std::vector<std::vector<float>> Logits(int tp, int ep, const std::vector<double>& shares,
                                           CpuLevel level) const {
        const auto layout = model::MakeLayout(tp, tp, 1, shares, ep).value();
        const std::vector<program::Program> programs = Programs(layout, DType::kF32);
        std::vector<std::vector<float>> got(programs.size());
        if (got.size() != static_cast<size_t>(tp)) return {};
        auto fabrics = net::MakeLocalFabrics(tp, net::Transport::kShm, size_t{1} << 20).value();
        test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            std::vector<int> ranks(static_cast<size_t>(tp));
            std::iota(ranks.begin(), ranks.end(), 0);
            const coll::Channel channel{0, size_t{1} << 20, 0, net::kFlags};
            const auto comm = coll::Comm::Make(fabric, ranks, channel, 10'000).value();
            const auto r = static_cast<size_t>(fabric.rank);
            LoadedRank rank(programs[r], *source_, {1, {}, true, level});
            got[r] = rank.Logits(tokens_, 64, OneGroup(*comm).groups);
        });
        return got;
    }

    test::TempDir dir_;
    std::unique_ptr<model_files::ModelSource> source_;
    model::Hyper hyper_;
    std::vector<float> expected_;
    std::vector<int32_t> tokens_;
};

INSTANTIATE_TEST_SUITE_P(All, FamilyModels, testing::ValuesIn(CasesIn("/families")),
                         [](const auto& one) { return one.param; });

// Some 60 ops in a row, each a sum of at most 224 float32 products: 60 * sqrt(224) * 2^-24.
constexpr double kFamilyFloat32 = 5.4e-5;

TEST_P(FamilyModels, ProgramsOfEveryLayout) {
    if (hyper_.latent.rank > 0) GTEST_SKIP() << "golden files of models test latent attention";
    const std::vector<model::Layout> layouts = {
        {}, {1, 2, {}, {}}, {2, 2, {}, {}}, {3, 1, {}, {}}, {3, 2, {3, 1, 2}, {}}};
    for (const model::Layout& layout : test::Some(layouts, 5, Turn())) {
        if (layout.tp <= MostRanks()) CheckPrograms(layout);
    }
}

// Stages that begin before, at and after layers whose KV cache other layers read, or that only
// forward what those layers need.
TEST_P(FamilyModels, AnyCutOfSharedCaches) {
    if (hyper_.shared_kv == 0) return;
    for (int64_t cut = 1; cut < hyper_.layers; ++cut) {
        if (!test::InTurn(static_cast<size_t>(cut), 3)) continue;
        const auto before = static_cast<double>(cut);
        CheckPrograms({1, 2, {}, {before, static_cast<double>(hyper_.layers) - before}});
    }
    CheckPrograms({2, 3, {}, {}});
    CheckPrograms({1, static_cast<int>(hyper_.layers), {}, {}});
}

// A stage keeps the keys and values that it receives between steps, and receives all residual
// streams.
TEST_P(FamilyModels, StagesOfSharedCaches) {
    if (hyper_.shared_kv == 0 && hyper_.windowing.streams == 0) return;
    const CpuLevel best = BestCpuLevel(DetectCpu());
    const std::vector<float> one = Logits(best, DType::kF32, 64);
    const auto all = static_cast<double>(hyper_.layers);
    for (double cut = 1; cut < all; ++cut) {
        if (!test::InTurn(static_cast<size_t>(cut), 2)) continue;
        const std::vector<program::Program> programs =
            Programs({1, 2, {}, {cut, all - cut}}, DType::kF32);
        ASSERT_EQ(programs.size(), 2u);
        std::vector<float> got;
        auto fabrics = net::MakeLocalFabrics(2, net::Transport::kShm, size_t{1} << 20).value();
        test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            const std::vector<int> ranks = {0, 1};
            const coll::Channel channel{0, size_t{1} << 20, 0, net::kFlags};
            const auto comm = coll::Comm::Make(fabric, ranks, channel, 10'000).value();
            OneGroup group(*comm);
            const auto r = static_cast<size_t>(fabric.rank);
            LoadedRank rank(programs[r], *source_, {1, {}, true, best});
            if (r == 0) got = rank.Logits(tokens_, 7, group.groups);
            for (size_t at = 0; r == 1 && at < tokens_.size(); at += 7) {
                const auto piece =
                    std::span(tokens_).subspan(at, std::min<size_t>(7, tokens_.size() - at));
                EXPECT_TRUE(rank.Run(piece, static_cast<int64_t>(at), group.groups).ok());
            }
        });
        EXPECT_EQ(got, one) << "the first stage has " << cut << " layers";
    }
}

// Rows have the same bits for any prefill chunks.
TEST_P(FamilyModels, KernelsOfEveryTable) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        const std::vector<float> exact = Logits(level, DType::kF32, 64);
        EXPECT_EQ(Far(exact, kFamilyFloat32), 0) << CpuLevelName(level) << " " << Most(exact);
        EXPECT_EQ(Logits(level, DType::kF32, 7), exact) << CpuLevelName(level);
    }
}

TEST_P(FamilyModels, TensorRanksAndExpertGroups) {
    const CpuLevel best = BestCpuLevel(DetectCpu());
    const std::vector<float> one = Logits(best, DType::kF32, 64);
    struct Case {
        int tp, ep;
        std::vector<double> shares;
    };
    std::vector<Case> cases = {{2, 0, {}}, {3, 0, {1, 2, 1}}};
    // The 96 columns of an expert are three blocks.
    cases.push_back(hyper_.moe.experts > 0 ? Case{2, 2, {}} : Case{4, 0, {}});
    for (const Case& c : test::Some(cases, 3, Turn())) {
        if (c.tp > MostRanks()) continue;
        SCOPED_TRACE(fmt::format("tp {} ep {}", c.tp, c.ep));
        const auto got = Logits(c.tp, c.ep, c.shares, best);
        ASSERT_EQ(got.size(), static_cast<size_t>(c.tp));
        for (const std::vector<float>& logits : got) {
            EXPECT_EQ(logits, got[0]) << "tensor ranks differ";
        }
        EXPECT_EQ(Far(got[0], kFamilyFloat32), 0) << Most(got[0]);
    }
}

// Neither prefill chunks nor a split of the heads changes a bit of DeepSeek-V4's logits.
TEST_P(FamilyModels, PooledWindows) {
    if (!hyper_.windowing.pools) return;
    const CpuLevel best = BestCpuLevel(DetectCpu());
    const std::vector<float> one = Logits(best, DType::kF32, 64);
    for (const size_t piece : {1, 3, 4, 5, 11}) {
        EXPECT_EQ(Logits(best, DType::kF32, piece), one) << "steps of " << piece;
    }
    const std::vector<double> shares[] = {{1, 1}, {1, 2, 1}, {2, 1, 1}};
    for (const std::vector<double>& each : shares) {
        const auto tp = static_cast<int>(each.size());
        for (const std::vector<float>& logits : Logits(tp, 0, each, best)) {
            EXPECT_EQ(logits, one) << "tp " << tp;
        }
    }
    EXPECT_FALSE(model::PlanShards(hyper_, *source_, {5, 1, {}, {}}).ok());
    const model::ShardPlan plan = model::PlanShards(hyper_, *source_, {}).value();
    for (const auto outputs : {model::Outputs::kBoth, model::Outputs::kHidden}) {
        model::BuildOptions embeds;
        embeds.outputs = outputs;
        const auto program = model::BuildProgram(hyper_, plan.shards[0], *source_, embeds);
        EXPECT_TRUE(program.ok()) << (program.ok() ? "" : program.error().message);
    }
}

// The f16 cache rounds to 2^-11, which may change the choice between experts with nearly equal
// scores; most rows have close logits.
TEST_P(FamilyModels, HalfPrecisionCaches) {
    const std::vector<float> logits = Logits(BestCpuLevel(DetectCpu()), DType::kF16, 1);
    EXPECT_LE(Far(logits, 3e-3), hyper_.moe.experts > 0 ? 2 : 0) << Most(logits);
}

// The F32 file that `weft quantize` makes of the folder is the same model.
TEST_P(FamilyModels, AsGguf) {
    const CpuLevel best = BestCpuLevel(DetectCpu());
    const std::vector<float> folder = Logits(best, DType::kF32, 64);
    ASSERT_NO_FATAL_FAILURE(Quantize("F32"));
    EXPECT_EQ(Logits(best, DType::kF32, 64), folder);
}

// BF16 weights give the logits of the same numbers in F32: multipliers are not folded into the
// weights, which would round them again. The reference kernels do not round activations.
TEST(FalconH1, WeightsOfSixteenBitsAreRoundedOnce) {
    const std::string name = "falconH1";
    const HfGolden golden(TestData("/families/" + name + ".safetensors"));
    std::vector<float> logits[2];
    for (const bool halves : {false, true}) {
        std::map<std::string, SafeBytes> tensors = golden.Tensors(name);
        for (auto& [tensor, bytes] : tensors) {
            if (bytes.shape.size() != 2) continue;
            ASSERT_EQ(bytes.dtype, "F32");
            std::vector<float> values(bytes.data.size() / sizeof(float));
            std::memcpy(values.data(), bytes.data.data(), bytes.data.size());
            std::vector<uint16_t> rounded;
            for (float& value : values) {
                rounded.push_back(F32ToBF16(value));
                value = BF16ToF32(rounded.back());
            }
            bytes.data = halves ? BytesOfValues(rounded) : BytesOfValues(values);
            if (halves) bytes.dtype = "BF16";
        }
        const test::TempDir dir;
        WriteText(dir / "config.json", golden.Text(name + "/config"));
        WriteTensors(dir.path(), tensors);
        const auto source = model_files::hf::OpenFolder(dir.path());
        ASSERT_TRUE(source.ok()) << source.error().message;
        const auto hyper = model::ReadHyper(**source);
        ASSERT_TRUE(hyper.ok()) << hyper.error().message;
        model::BuildOptions build;
        build.kv_dtype = DType::kF32;
        const auto programs = Build(*hyper, **source, {}, build);
        logits[halves] = LoadedRank(programs.at(0), **source, {1, {}, true, CpuLevel::kReference})
                             .Logits(golden.Tokens(name), 64);
    }
    ASSERT_EQ(logits[1].size(), logits[0].size());
    double error = 0, size = 0;
    for (size_t i = 0; i < logits[0].size(); ++i) {
        error += std::pow(double{logits[1][i]} - double{logits[0][i]}, 2);
        size += std::pow(double{logits[0][i]}, 2);
    }
    EXPECT_FALSE(!(std::sqrt(error / size) <= kFamilyFloat32)) << std::sqrt(error / size);
}

// Blocks of 32 columns in layers of 24 columns per rank.
TEST_P(FamilyModels, StagesCutNoBlocks) {
    if (hyper_.layer_columns != 24) return;
    ASSERT_NO_FATAL_FAILURE(Quantize("Q8_0"));
    const model::ShardPlan plan = model::PlanShards(hyper_, *source_, {1, 2, {}, {2, 2}}).value();
    const auto cut = model::BuildProgram(hyper_, plan.shards[0], *source_, {});
    ASSERT_FALSE(cut.ok());
    EXPECT_NE(cut.error().message.find("use --pp 1"), std::string::npos) << cut.error().message;
    const model::ShardPlan whole = model::PlanShards(hyper_, *source_, {}).value();
    EXPECT_TRUE(model::BuildProgram(hyper_, whole.shards[0], *source_, {}).ok());
}

}  // namespace
}  // namespace weft::support
