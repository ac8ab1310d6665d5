// MTP heads (tests/data/draft_heads, made by tools/make_draft_head_golden.py), EAGLE-3 heads
// (tests/data/eagle_heads, by tools/make_eagle_golden.py) and DFlash heads
// (tests/data/dflash_heads, by tools/make_dflash_golden.py) against the references: after prompts
// in one step and in several, further runs from the head's own rows, blocks, on several tensor
// ranks, from the folder and from its GGUF file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cpu/cpu_device.h"
#include "coll/comm.h"
#include "model/draft_head.h"
#include "model/load.h"
#include "model_files/draft_source.h"
#include "model_files/hf/folder.h"
#include "quantize/quantize.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/loaded_rank.h"
#include "support/nightly.h"
#include "support/ranks.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

constexpr int64_t kRows = 32;
constexpr size_t kDrafts = 3;

// A rank's Program with its head, and steps of one sequence.
class HeadRank {
  public:
    HeadRank(const program::Program& program, const model_files::ModelSource& source,
             const backend::Communicators& groups)
        : program_(program),
          head_(model::DraftHeadOf(program_)),
          groups_(groups),
          device_(backend::MakeCpuDevice({1, {}, true, BestCpuLevel(DetectCpu())})) {
        backend::CompileOptions compile;
        compile.max_tokens = compile.max_outputs = kRows;
        compile.kv_pages = 2;
        if (program::SlotBytes(program_) > 0) compile.state_slots = 1;
        for (const program::ValueId result :
             {program_.Find("logits"), head_.state, head_.made, head_.logits, head_.between}) {
            if (result != program::kNoValue) compile.keep.push_back(result);
        }
        executable_ = device_->Compile({program_}, compile).value();
        for (size_t i = 0; i < program_.values.size(); ++i) {
            const program::Value& value = program_.values[i];
            if (value.storage != program::Storage::kWeight) continue;
            const Status loaded = executable_->LoadWeight(
                static_cast<program::ValueId>(i),
                [&](int64_t row, int64_t count, std::span<std::byte> out) {
                    return model::ReadWeight(source, value, row, count, out, nullptr);
                });
            EXPECT_TRUE(loaded.ok());
        }
    }

    void Run(const program::OpRange& ops, std::span<const int32_t> tokens, size_t position) {
        const std::vector<int32_t> pages = {1, 0};
        std::vector<int32_t> positions(tokens.size()), rows(tokens.size());
        std::iota(positions.begin(), positions.end(), static_cast<int32_t>(position));
        std::iota(rows.begin(), rows.end(), 0);
        std::vector<backend::StepSequence> sequences = {
            {0, static_cast<int32_t>(tokens.size()), static_cast<int32_t>(position), pages}};
        sequences[0].state_from = position > 0 ? 0 : -1;
        sequences[0].state_to = 0;
        const Status ran =
            executable_->Run(ops, {++step_, tokens, positions, sequences, rows}, groups_);
        ASSERT_TRUE(ran.ok()) << ran.error().message;
    }
    void Append(program::ValueId id, size_t rows, std::vector<float>& all) {
        const size_t count = rows * static_cast<size_t>(program_.value(id).shape[1]);
        all.resize(all.size() + count);
        ASSERT_TRUE(executable_->ReadFloats(id, 0, std::span(all).last(count)).ok());
    }

    // Logits of the head after all tokens except the last, with the prompt in pieces; then of
    // kDrafts further runs.
    struct Out {
        std::vector<float> model, head, drafts;
        bool operator==(const Out&) const = default;
    };
    // map: the model's token of each token of the head; empty: the same.
    Out All(std::span<const int32_t> tokens, size_t piece, std::span<const int32_t> map) {
        Out out;
        const size_t last = tokens.size() - 1;
        size_t count = 0;
        for (size_t at = 0; at < last; at += count) {
            count = std::min(piece, last - at);
            Run(head_.step, tokens.subspan(at, count), at);
            Append(program_.Find("logits"), count, out.model);
            Run(head_.first, tokens.subspan(at + 1, count), at);
            Append(head_.logits, count, out.head);
        }
        const auto vocab = program_.value(head_.logits).shape[1];
        std::vector<float> row(out.head.end() - vocab, out.head.end()), made;
        size_t from = count - 1;  // row of the last run that continues
        for (size_t draft = 0; draft < kDrafts; ++draft) {
            const auto best = std::ranges::max_element(row) - row.begin();
            made.clear();
            Append(head_.made, from + 1, made);
            const auto hidden = static_cast<size_t>(program_.value(head_.made).shape[1]);
            const auto state = std::as_bytes(std::span(made).last(hidden));
            EXPECT_TRUE(executable_->Write(head_.state, 0, state).ok());
            const std::vector<int32_t> token = {map.empty() ? static_cast<int32_t>(best)
                                                            : map[static_cast<size_t>(best)]};
            Run(head_.next, token, last + draft);
            row.clear();
            Append(head_.logits, 1, row);
            out.drafts.insert(out.drafts.end(), row.begin(), row.end());
            from = 0;
        }
        return out;
    }

    // Logits of the mask tokens of blocks after the first n tokens, for each n in `ends`. The text
    // grows between them, in pieces.
    Out Blocks(std::span<const int32_t> tokens, size_t piece, const std::vector<size_t>& ends,
               const model::Hyper& head) {
        Out out;
        size_t at = 0;
        for (const size_t end : ends) {
            for (size_t count = 0; at + 1 < end; at += count) {
                count = std::min(piece, end - 1 - at);
                Run(head_.step, tokens.subspan(at, count), at);
                Append(program_.Find("logits"), count, out.model);
                Run(head_.first, tokens.subspan(at + 1, count), at);
            }
            std::vector<int32_t> block(static_cast<size_t>(head.block),
                                       static_cast<int32_t>(head.mask));
            block[0] = tokens[end - 1];
            Run(head_.next, block, end - 1);
            std::vector<float> rows;
            Append(head_.logits, block.size(), rows);
            out.head.insert(out.head.end(), rows.begin() + program_.value(head_.logits).shape[1],
                            rows.end());
        }
        return out;
    }

  private:
    program::Program program_;
    model::DraftHeadOps head_;
    backend::Communicators groups_;
    std::shared_ptr<backend::Device> device_;
    std::unique_ptr<backend::Executable> executable_;
    int64_t step_ = 0;
};

class HeadTest : public testing::TestWithParam<std::string> {
  protected:
    void Expect(const HfGolden& golden) {
        tokens_ = golden.Tokens(GetParam());
        logits_ = golden.Floats(GetParam() + "/logits");
        drafts_ = golden.Floats(GetParam() + "/drafts");
    }
    void Take(Result<std::unique_ptr<model_files::ModelSource>> source) {
        ASSERT_TRUE(source.ok()) << source.error().message;
        source_ = std::move(*source);
        const auto hyper = model::ReadHyper(*source_);
        ASSERT_TRUE(hyper.ok()) << hyper.error().message;
        hyper_ = *hyper;
    }
    std::vector<program::Program> Programs(const model::Layout& layout, bool head) const {
        model::BuildOptions build;
        build.kv_dtype = DType::kF32;
        build.draft_head = head;
        return Build(hyper_, *source_, layout, build);
    }
    std::vector<HeadRank::Out> Outputs(int tp, const std::vector<double>& shares) const {
        const auto layout = model::MakeLayout(tp, tp, 1, shares).value();
        const std::vector<program::Program> programs = Programs(layout, true);
        std::vector<HeadRank::Out> got(programs.size());
        auto fabrics = net::MakeLocalFabrics(tp, net::Transport::kShm, size_t{1} << 20).value();
        test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            std::vector<int> ranks(static_cast<size_t>(tp));
            std::iota(ranks.begin(), ranks.end(), 0);
            const coll::Channel channel{0, size_t{1} << 20, 0, net::kFlags};
            const auto comm = coll::Comm::Make(fabric, ranks, channel, 10'000).value();
            const auto r = static_cast<size_t>(fabric.rank);
            HeadRank rank(programs[r], *source_, OneGroup(*comm).groups);
            got[r] = Of(rank, kRows);
        });
        return got;
    }
    HeadRank::Out Alone(size_t piece) const {
        HeadRank rank(Programs({}, true).at(0), *source_, {});
        return Of(rank, piece);
    }
    HeadRank::Out Of(HeadRank& rank, size_t piece) const {
        if (hyper_.block_rows() == 0) return rank.All(tokens_, piece, map_);
        return rank.Blocks(tokens_, piece, ends_, hyper_.head[0]);
    }
    // Largest distance of a row from the reference, relative to its length.
    double Far(const std::vector<float>& got, const std::vector<float>& expected) const {
        EXPECT_EQ(got.size(), expected.size());
        if (got.size() != expected.size()) return INFINITY;
        const auto vocab =
            static_cast<size_t>(hyper_.head.empty() ? hyper_.vocab : hyper_.head[0].vocab);
        double worst = 0;
        for (size_t row = 0; row < got.size(); row += vocab) {
            double error = 0, size = 0;
            for (size_t i = row; i < row + vocab; ++i) {
                error += std::pow(double{got[i]} - double{expected[i]}, 2);
                size += std::pow(double{expected[i]}, 2);
            }
            const double far = std::sqrt(error / size);
            worst = far <= worst ? worst : far;  // NaN counts as the largest
        }
        return worst;
    }

    test::TempDir dir_;
    std::unique_ptr<model_files::ModelSource> source_;
    model::Hyper hyper_;
    std::vector<int32_t> tokens_, map_;
    std::vector<size_t> ends_;
    std::vector<float> logits_, drafts_;
};

class DraftHeads : public HeadTest {
  protected:
    void SetUp() override {
        const HfGolden golden(TestData("/draft_heads/" + GetParam() + ".safetensors"));
        golden.Write(GetParam(), dir_ / "model");
        WriteText(dir_ / "model/tokenizer.json", SmallTokenizer());
        Take(model_files::hf::OpenFolder(dir_ / "model"));
        ASSERT_TRUE(hyper_.draft_head);
        Expect(golden);
    }
};

INSTANTIATE_TEST_SUITE_P(All, DraftHeads, testing::ValuesIn(CasesIn("/draft_heads")),
                         [](const auto& one) { return one.param; });

// As kFamilyFloat32, over one more layer and, for drafts, three more runs of it.
constexpr double kFar = 8e-5;

TEST_P(DraftHeads, AgreeWithTheReference) {
    const HeadRank::Out got = Alone(kRows);
    const double logits = Far(got.head, logits_), drafts = Far(got.drafts, drafts_);
    EXPECT_TRUE(logits <= kFar) << logits;
    EXPECT_TRUE(drafts <= kFar) << drafts;
    EXPECT_EQ(Alone(5), got) << "a prompt in several steps";
}

// The model's logits are the same with and without a head.
TEST_P(DraftHeads, LeaveTheModelAlone) {
    const program::Program with = Programs({}, true).at(0), without = Programs({}, false).at(0);
    const model::DraftHeadOps head = model::DraftHeadOf(with);
    ASSERT_EQ(head.step.end, without.ops.size());
    EXPECT_EQ(model::DraftHeadOf(without).step.end, without.ops.size());
    for (size_t i = 0; i < without.ops.size(); ++i) {
        EXPECT_EQ(with.ops[i].kind(), without.ops[i].kind());
        EXPECT_EQ(with.ops[i].inputs.size(), without.ops[i].inputs.size());
    }
}

TEST_P(DraftHeads, OnTensorRanks) {
    const HeadRank::Out one = Alone(kRows);
    for (const auto& [tp, shares] :
         std::vector<std::pair<int, std::vector<double>>>{{2, {}}, {3, {1, 2, 1}}, {4, {}}}) {
        if (tp > 2 && !test::Nightly() && (tp == 4 || GetParam() != "glm4moe")) continue;
        const std::vector<HeadRank::Out> ranks = Outputs(tp, shares);
        for (const HeadRank::Out& got : ranks) {
            EXPECT_TRUE(Far(got.head, logits_) <= kFar) << tp;
            EXPECT_TRUE(Far(got.drafts, drafts_) <= kFar) << tp;
            EXPECT_EQ(got, ranks[0]) << "tensor ranks differ: " << tp;
            // The model's own sums may differ by the split (attention over a latent).
            if (got.model == one.model) {
                EXPECT_EQ(got, one) << tp;
            }
        }
    }
}

TEST_P(DraftHeads, AsGguf) {
    const HeadRank::Out folder = Alone(kRows);
    quantize::QuantizeOptions options;
    options.type = quantize::FindFileType("F32").value();
    const auto plan = quantize::PlanQuantize(*source_, options);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const std::string path = dir_ / "model.gguf";
    const auto written = quantize::WriteQuantized(*source_, *plan, path, {});
    ASSERT_TRUE(written.ok()) << written.error().message;
    Take(model_files::OpenModel(path));
    EXPECT_EQ(Alone(kRows), folder);
}

// A head's own embedding and output matrix are used, also if they equal the model's.
TEST_P(DraftHeads, HaveOwnEndsOrTheModels) {
    const std::string layer = fmt::format("{}", hyper_.layers);
    const std::string table = "blk." + layer + ".nextn.embed_tokens.weight";
    const std::string output = "blk." + layer + ".nextn.shared_head_head.weight";
    const bool own = GetParam() == "glm4moeEnds";
    EXPECT_EQ(source_->FindTensor(table) != nullptr, own);
    EXPECT_EQ(source_->FindTensor(output) != nullptr, own || GetParam() == "step35");
    const HfGolden golden(TestData("/draft_heads/" + GetParam() + ".safetensors"));
    auto tensors = golden.Tensors(GetParam());
    const std::string of_head = "model.layers." + layer + ".";
    const bool after = tensors.contains(of_head + "eh_proj.weight");  // the model's layers
    if (own || GetParam() == "step35" || !after || !tensors.contains("model.embed_tokens.weight"))
        return;
    const HeadRank::Out before = Alone(kRows);
    tensors[of_head + "embed_tokens.weight"] = tensors.at("model.embed_tokens.weight");
    tensors[of_head + "shared_head.head.weight"] = tensors.at("lm_head.weight");
    WriteTensors(dir_ / "model", tensors);
    Take(model_files::hf::OpenFolder(dir_ / "model"));
    EXPECT_NE(source_->FindTensor(table), nullptr);
    EXPECT_NE(source_->FindTensor(output), nullptr);
    EXPECT_EQ(Alone(kRows), before);
}

TEST_P(DraftHeads, AreLeftOutWhereTheFolderHasNone) {
    const HfGolden golden(TestData("/draft_heads/" + GetParam() + ".safetensors"));
    auto tensors = golden.Tensors(GetParam());
    const std::string of_layer = fmt::format("model.layers.{}.", hyper_.layers);
    std::erase_if(tensors, [&](const auto& entry) {
        return entry.first.starts_with("mtp.") || entry.first.starts_with("model.mtp.") ||
               entry.first.starts_with(of_layer);
    });
    WriteTensors(dir_ / "model", tensors);
    const auto source = model_files::hf::OpenFolder(dir_ / "model");
    ASSERT_TRUE(source.ok()) << source.error().message;
    const auto hyper = model::ReadHyper(**source);
    ASSERT_TRUE(hyper.ok());
    EXPECT_FALSE(hyper->draft_head);
    EXPECT_EQ(hyper->layers, hyper_.layers);
    model::BuildOptions build;
    build.draft_head = true;
    const model::ShardPlan plan = model::PlanShards(*hyper, **source, {}).value();
    const auto built = model::BuildProgram(*hyper, plan.shards[0], **source, build);
    ASSERT_FALSE(built.ok());
    EXPECT_EQ(built.error().code, ErrorCode::kUsage);
    EXPECT_NE(built.error().message.find("--draft mtp"), std::string::npos);
}

TEST_P(DraftHeads, NameTheTensorThatTheyLack) {
    const HfGolden golden(TestData("/draft_heads/" + GetParam() + ".safetensors"));
    auto tensors = golden.Tensors(GetParam());
    std::string lost;
    for (const auto& [name, tensor] : tensors) {
        const bool norm = name.ends_with("enorm.weight") || name.ends_with("norm_embedding.weight");
        if (norm) lost = name;
    }
    ASSERT_EQ(tensors.erase(lost), 1u);
    WriteTensors(dir_ / "model", tensors);
    Take(model_files::hf::OpenFolder(dir_ / "model"));
    const Status checked = model::CheckDraftHead(hyper_, "model");
    ASSERT_FALSE(checked.ok());
    EXPECT_NE(checked.error().message.find(lost), std::string::npos) << checked.error().message;
}

// ---- EAGLE-3 ------------------------------------------------------------------------------------

class EagleHeads : public HeadTest {
  protected:
    void SetUp() override {
        golden_.Write(GetParam() + "Model", dir_ / "model");
        golden_.Write(GetParam(), dir_ / "head");
        Expect(golden_);
        Take(Open());
        ASSERT_EQ(hyper_.head.size(), 1u);
        const model_files::DraftHeadSource head(*source_);
        const model_files::TensorInfo* map = head.FindTensor("d2t.weight");
        EXPECT_EQ(map == nullptr, GetParam() == "nested");
        if (map == nullptr) return;
        map_.resize(static_cast<size_t>(map->cols));
        const auto bytes = std::as_writable_bytes(std::span(map_));
        ASSERT_TRUE(head.ReadRows(*map, 0, 1, 0, map->cols, bytes, nullptr).ok());
    }
    Result<std::unique_ptr<model_files::ModelSource>> Open() {
        WEFT_ASSIGN(auto model, model_files::OpenModel(dir_ / "model"));
        return model_files::WithDraftHead(std::move(model), dir_ / "head");
    }
    // The error of opening the head, or of reading the sizes of both.
    std::string Refusal() {
        auto source = Open();
        if (!source.ok()) return source.error().message;
        const auto hyper = model::ReadHyper(**source);
        return hyper.ok() ? "" : hyper.error().message;
    }

    const HfGolden golden_{TestData("/eagle_heads/" + GetParam() + ".safetensors")};
};

INSTANTIATE_TEST_SUITE_P(All, EagleHeads, testing::ValuesIn(CasesIn("/eagle_heads")),
                         [](const auto& one) { return one.param; });

constexpr double kEagleFar = 1e-5;

TEST_P(EagleHeads, AgreeWithTheReference) {
    const HeadRank::Out got = Alone(kRows);
    const double logits = Far(got.head, logits_), drafts = Far(got.drafts, drafts_);
    EXPECT_TRUE(logits <= kEagleFar) << logits;
    EXPECT_TRUE(drafts <= kEagleFar) << drafts;
    EXPECT_EQ(Alone(5), got) << "a prompt in several steps";
}

TEST_P(EagleHeads, LeaveTheModelAlone) {
    const program::Program with = Programs({}, true).at(0), without = Programs({}, false).at(0);
    const model::DraftHeadOps head = model::DraftHeadOf(with);
    ASSERT_EQ(head.step.end, without.ops.size());
    for (size_t i = 0; i < without.ops.size(); ++i) {
        EXPECT_EQ(with.ops[i].kind(), without.ops[i].kind());
    }
}

TEST_P(EagleHeads, OnTensorRanks) {
    const HeadRank::Out one = Alone(kRows);
    for (const HeadRank::Out& got : Outputs(2, {})) {
        EXPECT_TRUE(Far(got.head, logits_) <= kEagleFar);
        EXPECT_TRUE(Far(got.drafts, drafts_) <= kEagleFar);
        if (got.model == one.model) {
            EXPECT_EQ(got, one);
        }
    }
}

TEST_P(EagleHeads, ThatDoNotFitAreRefused) {
    const auto config = nlohmann::json::parse(golden_.Text(GetParam() + "/config"));
    const auto table = golden_.Tensors(GetParam());
    const bool nested = GetParam() == "nested";
    const auto with_key = [&](const std::string& key, const nlohmann::json& value) {
        nlohmann::json changed = config;
        const bool inside = nested && changed["transformer_layer_config"].contains(key);
        (inside ? changed["transformer_layer_config"] : changed)[key] = value;
        WriteText(dir_ / "head/config.json", changed.dump());
        return Refusal();
    };
    const auto expect = [](const std::string& error, std::string_view part) {
        EXPECT_NE(error.find(part), std::string::npos) << part << ": " << error;
    };
    expect(with_key("vocab_size", 84), nested ? "embed_tokens" : "vocab_size is 84");
    expect(with_key("num_hidden_layers", 2), "num_hidden_layers");
    expect(with_key("fc_norm", true), "fc_norm");
    expect(with_key("target_hidden_size", 80), "target_hidden_size is 80");
    expect(with_key("eagle_aux_hidden_state_layer_ids", {1, 9, 30}),
           "eagle_aux_hidden_state_layer_ids");
    expect(with_key("eagle_aux_hidden_state_layer_ids", {1, 2}), "fc.weight");
    expect(with_key("draft_vocab_size", 30), "lm_head.weight");
    expect(with_key("speculators_model_type", "eagle"), "type 'eagle'");
    WriteText(dir_ / "head/config.json", config.dump());
    for (const auto& [name, tensor] : table) {
        auto others = table;
        others.erase(name);
        const bool optional = name.ends_with("bias") || name == "embed_tokens.weight";
        WriteTensors(dir_ / "head", others);
        if (!optional) expect(Refusal(), name);
    }
    auto more = table;
    const std::string norm = (nested ? "layers.0." : "midlayer.") + std::string("self_attn.q_norm");
    more[norm + ".weight"] = HfGolden::Make("x", "F32", {24}, 1);
    WriteTensors(dir_ / "head", more);
    expect(Refusal(), norm + ".weight");
    if (nested) return;
    auto wrong = table;
    for (const int64_t value : {44, -1}) {
        std::vector<int64_t> d2t(40);
        d2t[value < 0 ? 0 : 39] = value;
        wrong["d2t"] = {"I64", {40}, BytesOfValues(d2t)};
        WriteTensors(dir_ / "head", wrong);
        expect(Refusal(), "tensor 'd2t' has the value");
    }
}

// ---- DFlash -------------------------------------------------------------------------------------

class DflashHeads : public HeadTest {
  protected:
    void SetUp() override {
        golden_.Write(GetParam() + "Model", dir_ / "model");
        golden_.Write(GetParam(), dir_ / "head");
        tokens_ = golden_.Tokens(GetParam());
        logits_ = golden_.Floats(GetParam() + "/logits");
        for (const float end : golden_.Floats(GetParam() + "/anchors")) {
            ends_.push_back(static_cast<size_t>(end));
        }
        Take(Open());
        ASSERT_GT(hyper_.block_rows(), 0);
    }
    Result<std::unique_ptr<model_files::ModelSource>> Open() {
        WEFT_ASSIGN(auto model, model_files::OpenModel(dir_ / "model"));
        return model_files::WithDraftHead(std::move(model), dir_ / "head");
    }
    std::string Refusal() {
        auto source = Open();
        if (!source.ok()) return source.error().message;
        const auto hyper = model::ReadHyper(**source);
        return hyper.ok() ? "" : hyper.error().message;
    }

    const HfGolden golden_{TestData("/dflash_heads/" + GetParam() + ".safetensors")};
};

INSTANTIATE_TEST_SUITE_P(All, DflashHeads, testing::ValuesIn(CasesIn("/dflash_heads")),
                         [](const auto& one) { return one.param; });

TEST_P(DflashHeads, AgreeWithTheReference) {
    const HeadRank::Out got = Alone(kRows);
    const double logits = Far(got.head, logits_);
    EXPECT_TRUE(logits <= kEagleFar) << logits;
    EXPECT_EQ(Alone(5), got) << "a prompt in several steps";
}

TEST_P(DflashHeads, LeaveTheModelAlone) {
    const program::Program with = Programs({}, true).at(0), without = Programs({}, false).at(0);
    const model::DraftHeadOps head = model::DraftHeadOf(with);
    ASSERT_EQ(head.step.end, without.ops.size());
    EXPECT_EQ(head.first.end, head.next.begin);
    EXPECT_LT(head.first.begin, head.first.end);
    EXPECT_LT(head.next.begin, head.next.end);
}

TEST_P(DflashHeads, OnTensorRanks) {
    const HeadRank::Out one = Alone(kRows);
    for (const HeadRank::Out& got : Outputs(2, {})) {
        EXPECT_TRUE(Far(got.head, logits_) <= kEagleFar);
        if (got.model == one.model) {
            EXPECT_EQ(got, one);
        }
    }
}

TEST_P(DflashHeads, ThatDoNotFitAreRefused) {
    const auto config = nlohmann::json::parse(golden_.Text(GetParam() + "/config"));
    const auto table = golden_.Tensors(GetParam());
    const bool nested = GetParam() == "nested";
    const auto with_key = [&](const std::string& key, const nlohmann::json& value) {
        nlohmann::json changed = config;
        const char* inner = nested ? "transformer_layer_config" : "dflash_config";
        (changed[inner].contains(key) ? changed[inner] : changed)[key] = value;
        WriteText(dir_ / "head/config.json", changed.dump());
        return Refusal();
    };
    const auto expect = [](const std::string& error, std::string_view part) {
        EXPECT_NE(error.find(part), std::string::npos) << part << ": " << error;
    };
    expect(with_key("mask_token_id", 83), "mask_token_id is 83");
    expect(with_key("mask_token_id", nullptr), "mask_token_id");
    expect(with_key("block_size", 1), "block_size");
    expect(with_key("num_hidden_layers", 5), "layer_types");
    expect(with_key("target_hidden_size", 80), "target_hidden_size is 80");
    expect(with_key("shift_label", true), "shift_label");
    expect(with_key("projector_type", "domino"), "projector_type");
    const char* reads = nested ? "aux_hidden_state_layer_ids" : "target_layer_ids";
    expect(with_key(reads, {5, 2}), "ascending order");
    expect(with_key(reads, {1, 2, 3, 4, 30}), "aux_hidden_state_layer_ids");
    expect(with_key(reads, {1}), "fc.weight");
    expect(with_key(reads, nlohmann::json::array()), "target_layer_ids");
    expect(with_key("architectures", {nested ? "Other" : "DSparkDraftModel"}),
           nested ? "" : "'DSparkDraftModel'");
    expect(with_key("speculators_model_type", "dspark"), "'dspark'");
    WriteText(dir_ / "head/config.json", config.dump());
    for (const auto& [name, tensor] : table) {
        auto others = table;
        others.erase(name);
        const bool optional = name.ends_with("bias") || name == "embed_tokens.weight";
        WriteTensors(dir_ / "head", others);
        if (!optional) expect(Refusal(), name);
    }
    auto more = table;
    more["layers.0.attention_conv.base_kernel"] = HfGolden::Make("x", "F32", {24}, 1);
    WriteTensors(dir_ / "head", more);
    expect(Refusal(), "layers.0.attention_conv.base_kernel");
    if (nested) return;
    // The head has neither an embedding nor an output matrix, but a token table of another
    // vocabulary.
    auto others = table;
    others.erase("lm_head.weight");
    others.erase("embed_tokens.weight");
    others["d2t"] = {"I64", {1000}, BytesOfValues(std::vector<int64_t>(1000))};
    WriteTensors(dir_ / "head", others);
    expect(with_key("vocab_size", 1000), "vocab_size is 1000");
}

// A head's folder is not a model.
TEST_P(EagleHeads, AreNotRunAlone) {
    const auto head = model_files::OpenModel(dir_ / "head");
    ASSERT_TRUE(head.ok()) << head.error().message;
    const auto hyper = model::ReadHyper(**head);
    ASSERT_FALSE(hyper.ok());
    EXPECT_NE(hyper.error().message.find("--draft"), std::string::npos) << hyper.error().message;
}

}  // namespace
}  // namespace weft::support
