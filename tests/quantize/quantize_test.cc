// File types and their mixes, plans, importance matrices: src/quantize.
#include "quantize/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <cstring>
#include <filesystem>
#include <random>

#include "base/file.h"
#include "model_files/gguf.h"
#include "model_files/gguf_writer.h"
#include "support/temp_dir.h"
#include "tensor/encode.h"
#include "tensor/quant.h"

namespace weft::quantize {
namespace {

constexpr int64_t kLayers = 16;

std::vector<std::byte> Floats(size_t count, uint32_t seed, float size = 0.05f) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, size);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
}

// Names and shapes of a llama with an untied output; a few have odd rows.
void AddTensors(model_files::GgufWriter& writer, bool tied = false) {
    uint32_t seed = 1;
    const auto add = [&](const std::string& name, std::vector<int64_t> dims) {
        size_t count = 1;
        for (const int64_t dim : dims) count *= static_cast<size_t>(dim);
        writer.Tensor(name, DType::kF32, dims, Floats(count, seed++));
    };
    add("token_embd.weight", {256, 40});
    for (int64_t layer = 0; layer < kLayers; ++layer) {
        const std::string prefix = "blk." + std::to_string(layer) + ".";
        add(prefix + "attn_norm.weight", {256});
        for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_up"}) {
            add(prefix + name + ".weight", {256, 8});
        }
        add(prefix + "ffn_down.weight", {256, 8});
    }
    add("output_norm.weight", {256});
    if (!tied) add("output.weight", {256, 40});
    add("odd.weight", {96, 4});
    add("odder.weight", {20, 4});
    add("blk.0.ffn_gate_inp.weight", {256, 4});
    add("blk.0.ffn_up_exps.weight", {256, 6, 4});
}

std::string WriteModel(const test::TempDir& dir, bool tied = false) {
    model_files::GgufWriter writer;
    writer.String("general.architecture", "llama");
    writer.U32("general.file_type", 0);
    writer.U32("llama.block_count", kLayers);
    writer.U32("llama.attention.head_count", 8);
    writer.U32("llama.attention.head_count_kv", 4);
    writer.String("tokenizer.ggml.model", "none");
    AddTensors(writer, tied);
    const std::string path = dir / "in.gguf";
    EXPECT_TRUE(WriteFile(path, writer.File()).ok());
    return path;
}

QuantizeOptions OptionsOf(std::string_view type) {
    QuantizeOptions options;
    options.type = FindFileType(type).value();
    return options;
}

// "F32:3 Q4_K:70 ...", and the type of one tensor.
DType TypeIn(const QuantizePlan& plan, std::string_view name) {
    for (const PlannedTensor& tensor : plan.tensors) {
        if (tensor.from->name == name) return tensor.to;
    }
    ADD_FAILURE() << "no tensor " << name;
    return DType::kI32;
}

int CountOf(const QuantizePlan& plan, std::string_view part, DType type) {
    int count = 0;
    for (const PlannedTensor& tensor : plan.tensors) {
        count += tensor.from->name.find(part) != std::string::npos && tensor.to == type ? 1 : 0;
    }
    return count;
}

TEST(Quantize, MixesAreThoseOfLlamaQuantize) {
    const test::TempDir dir;
    const model_files::Gguf model = model_files::Gguf::Open(WriteModel(dir)).value();
    // For 16 layers: the types and numbers of attn_v and ffn_down, and the types of the output and
    // attn_output, as printed by llama-quantize 0.25.3 --dry-run for the same shapes.
    const struct {
        const char* type;
        DType value, down;
        int values, downs;
        DType output, attention_output;
    } expected[] = {
        {"Q4_K_M", DType::kQ6_K, DType::kQ6_K, 8, 8, DType::kQ6_K, DType::kQ4_K},
        {"Q5_K_M", DType::kQ6_K, DType::kQ6_K, 8, 8, DType::kQ6_K, DType::kQ5_K},
        {"Q4_K_S", DType::kQ5_K, DType::kQ5_K, 4, 2, DType::kQ6_K, DType::kQ4_K},
        {"Q3_K_M", DType::kQ5_K, DType::kQ5_K, 2, 1, DType::kQ6_K, DType::kQ4_K},
        {"Q3_K_L", DType::kQ5_K, DType::kQ5_K, 16, 16, DType::kQ6_K, DType::kQ5_K},
        {"Q3_K_S", DType::kQ3_K, DType::kQ3_K, 16, 16, DType::kQ6_K, DType::kQ3_K},
        {"Q2_K", DType::kQ3_K, DType::kQ3_K, 16, 16, DType::kQ6_K, DType::kQ3_K},
        {"Q8_0", DType::kQ8_0, DType::kQ8_0, 16, 16, DType::kQ8_0, DType::kQ8_0},
        {"Q4_0", DType::kQ4_0, DType::kQ4_0, 16, 16, DType::kQ6_K, DType::kQ4_0},
        {"IQ4_XS", DType::kIQ4_XS, DType::kQ5_K, 16, 2, DType::kQ6_K, DType::kIQ4_XS},
        {"IQ3_M", DType::kQ4_K, DType::kQ4_K, 16, 2, DType::kQ6_K, DType::kQ4_K},
        {"IQ3_S", DType::kIQ3_S, DType::kIQ3_S, 16, 16, DType::kQ6_K, DType::kIQ3_S},
        {"F16", DType::kF16, DType::kF16, 16, 16, DType::kF16, DType::kF16},
    };
    for (const auto& row : expected) {
        SCOPED_TRACE(row.type);
        const auto plan = PlanQuantize(model, OptionsOf(row.type));
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        EXPECT_EQ(CountOf(*plan, "attn_v.", row.value), row.values);
        EXPECT_EQ(CountOf(*plan, "ffn_down.", row.down), row.downs);
        EXPECT_EQ(TypeIn(*plan, "output.weight"), row.output);
        EXPECT_EQ(TypeIn(*plan, "blk.3.attn_output.weight"), row.attention_output);
        EXPECT_EQ(CountOf(*plan, "_norm", DType::kF32), kLayers + 1);
        EXPECT_EQ(TypeIn(*plan, "blk.0.ffn_gate_inp.weight"), DType::kF32);
        EXPECT_EQ(TypeIn(*plan, "blk.0.ffn_up_exps.weight"), OptionsOf(row.type).type.base);
    }
}

// For every 2-D tensor.
std::string WriteWholeImportance(const test::TempDir& dir, const model_files::Gguf& model) {
    model_files::GgufWriter writer;
    writer.String("general.type", "imatrix");
    for (const model_files::TensorInfo& tensor : model.tensors()) {
        if (tensor.dim_count < 2) continue;
        const int64_t experts = tensor.dims[2];
        const auto floats = [&](const char* suffix, int64_t cols, float value) {
            const std::vector<float> values(static_cast<size_t>(cols * experts), value);
            const auto bytes = std::as_bytes(std::span(values));
            writer.Tensor(tensor.name + suffix, DType::kF32, std::vector<int64_t>{cols, experts},
                          {bytes.begin(), bytes.end()});
        };
        floats(".in_sum2", tensor.cols, 3);
        floats(".counts", 1, 10);
    }
    const std::string path = dir / "whole.gguf";
    EXPECT_TRUE(WriteFile(path, writer.File()).ok());
    return path;
}

TEST(Quantize, MixesOfCodeBooksAreThoseOfLlamaQuantize) {
    const test::TempDir dir;
    const model_files::Gguf model = model_files::Gguf::Open(WriteModel(dir)).value();
    const auto importance = Importance::Read(WriteWholeImportance(dir, model)).value();
    // As printed by llama-quantize 0.25.3 --dry-run: the embedding, the output, attn_q, attn_k,
    // attn_v, attn_output and ffn_up of layer 7, ffn_up and ffn_down of layer 0, ffn_down of layer
    // 7.
    using enum DType;
    const struct {
        const char* type;
        DType embedding, output, query, key, value, attention_output, up, first_up, first_down,
            down;
    } expected[] = {
        {"IQ3_M", kIQ3_S, kQ6_K, kIQ3_S, kIQ3_S, kQ4_K, kQ4_K, kIQ3_S, kIQ3_S, kQ4_K, kIQ3_S},
        {"IQ3_S", kIQ3_S, kQ6_K, kIQ3_S, kIQ3_S, kIQ3_S, kIQ3_S, kIQ3_S, kIQ3_S, kIQ3_S, kIQ3_S},
        {"IQ3_XS", kIQ3_S, kQ6_K, kIQ3_XXS, kIQ3_XXS, kIQ3_S, kIQ3_S, kIQ3_XXS, kIQ3_S, kIQ3_S,
         kIQ3_S},
        {"IQ3_XXS", kIQ3_S, kQ5_K, kIQ2_S, kIQ2_S, kIQ3_XXS, kIQ3_S, kIQ3_XXS, kIQ3_XXS, kIQ3_XXS,
         kIQ3_XXS},
        {"IQ2_M", kIQ3_S, kQ5_K, kIQ2_S, kIQ2_S, kIQ3_S, kIQ3_S, kIQ2_S, kIQ2_S, kIQ3_S, kIQ2_S},
        {"IQ2_S", kIQ3_S, kQ5_K, kIQ2_XS, kIQ2_XS, kIQ3_S, kIQ3_S, kIQ2_XS, kIQ2_XS, kIQ3_S,
         kIQ2_XS},
        {"IQ2_XS", kQ2_K, kQ5_K, kIQ2_XS, kIQ2_XS, kQ2_K, kIQ2_XS, kIQ2_XS, kIQ2_XS, kQ2_K,
         kIQ2_XS},
        {"IQ2_XXS", kQ2_K, kQ5_K, kIQ2_XXS, kIQ2_XXS, kQ2_K, kIQ2_XXS, kIQ2_XXS, kIQ2_XXS, kQ2_K,
         kIQ2_XXS},
        {"IQ1_M", kQ2_K, kQ5_K, kIQ1_M, kIQ1_M, kQ2_K, kIQ2_XXS, kIQ1_M, kIQ1_M, kQ2_K, kIQ1_M},
        {"IQ1_S", kQ2_K, kQ5_K, kIQ1_S, kIQ1_S, kQ2_K, kIQ2_XXS, kIQ1_S, kIQ1_S, kQ2_K, kIQ1_S},
    };
    for (const auto& row : expected) {
        SCOPED_TRACE(row.type);
        QuantizeOptions options = OptionsOf(row.type);
        options.importance = &importance;
        const auto plan = PlanQuantize(model, options);
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        EXPECT_EQ(TypeIn(*plan, "token_embd.weight"), row.embedding);
        EXPECT_EQ(TypeIn(*plan, "output.weight"), row.output);
        EXPECT_EQ(TypeIn(*plan, "blk.7.attn_q.weight"), row.query);
        EXPECT_EQ(TypeIn(*plan, "blk.7.attn_k.weight"), row.key);
        EXPECT_EQ(TypeIn(*plan, "blk.7.attn_v.weight"), row.value);
        EXPECT_EQ(TypeIn(*plan, "blk.7.attn_output.weight"), row.attention_output);
        EXPECT_EQ(TypeIn(*plan, "blk.7.ffn_up.weight"), row.up);
        EXPECT_EQ(TypeIn(*plan, "blk.0.ffn_up.weight"), row.first_up);
        EXPECT_EQ(TypeIn(*plan, "blk.0.ffn_down.weight"), row.first_down);
        EXPECT_EQ(TypeIn(*plan, "blk.7.ffn_down.weight"), row.down);
    }
}

// One dense layer, then experts beside a shared one, and the matrices of latent attention.
TEST(Quantize, MixesWithSharedExpertsAndLatentAttention) {
    const test::TempDir dir;
    model_files::GgufWriter writer;
    writer.String("general.architecture", "deepseek2");
    writer.U32("deepseek2.block_count", 33);
    writer.U32("deepseek2.expert_count", 8);
    uint32_t seed = 1;
    const auto add = [&](const std::string& name, std::vector<int64_t> dims) {
        const auto count = static_cast<size_t>(dims[0] * dims[1] * (dims.size() > 2 ? dims[2] : 1));
        writer.Tensor(name + ".weight", DType::kF32, dims, Floats(count, seed++));
    };
    add("token_embd", {256, 8});
    add("output", {256, 8});
    for (int layer = 4; layer >= 0; --layer) {  // the order in the file does not count
        const std::string blk = fmt::format("blk.{}.", layer);
        add(blk + "attn_k_b", {256, 2, 2});
        add(blk + "attn_v_b", {256, 2, 2});
        if (layer == 0) add(blk + "ffn_down", {256, 2});
        if (layer == 0) continue;
        add(blk + "ffn_down_shexp", {256, 2});
        add(blk + "ffn_down_exps", {256, 2, 2});
    }
    ASSERT_TRUE(WriteFile(dir / "in.gguf", writer.File()).ok());
    const model_files::Gguf model = model_files::Gguf::Open(dir / "in.gguf").value();
    const auto importance = Importance::Read(WriteWholeImportance(dir, model)).value();
    QuantizeOptions options = OptionsOf("IQ2_M");
    options.importance = &importance;
    const auto mixed = PlanQuantize(model, options);
    ASSERT_TRUE(mixed.ok()) << mixed.error().message;
    // Four tensors (33 / 8) get more bits, as printed by llama-quantize --dry-run.
    const std::vector<std::string> more = {"blk.0.ffn_down.weight", "blk.1.ffn_down_exps.weight",
                                           "blk.1.ffn_down_shexp.weight",
                                           "blk.2.ffn_down_exps.weight"};
    for (const PlannedTensor& tensor : mixed->tensors) {
        const std::string& name = tensor.from->name;
        if (name.find("ffn_down") == name.npos) continue;
        const bool is_more = std::ranges::find(more, name) != more.end();
        EXPECT_EQ(tensor.to, is_more ? DType::kIQ3_S : DType::kIQ2_S) << name;
    }
    // In an MXFP4 file, only the experts are MXFP4.
    const auto mxfp4 = PlanQuantize(model, OptionsOf("MXFP4"));
    ASSERT_TRUE(mxfp4.ok()) << mxfp4.error().message;
    for (const PlannedTensor& tensor : mxfp4->tensors) {
        const bool experts = tensor.from->name.find("_exps.") != std::string::npos;
        EXPECT_EQ(tensor.to, experts ? DType::kMXFP4 : DType::kQ8_0) << tensor.from->name;
    }
}

TEST(Quantize, CodeBooksNeedAnImportance) {
    const test::TempDir dir;
    const model_files::Gguf model = model_files::Gguf::Open(WriteModel(dir)).value();
    for (const char* type :
         {"IQ3_XS", "IQ3_XXS", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S"}) {
        SCOPED_TRACE(type);
        const auto plan = PlanQuantize(model, OptionsOf(type));
        ASSERT_FALSE(plan.ok());
        EXPECT_EQ(plan.error().code, ErrorCode::kUsage);
        EXPECT_NE(plan.error().message.find("--imatrix"), std::string::npos);
        EXPECT_NE(plan.error().message.find("llama-imatrix"), std::string::npos);
    }
    for (const char* type : {"IQ3_M", "IQ3_S"}) {
        EXPECT_TRUE(PlanQuantize(model, OptionsOf(type)).ok()) << type;
    }
    // A matrix without one of the tensors; a rule gives that tensor another type.
    const auto importance = Importance::Read(WriteWholeImportance(dir, model)).value();
    model_files::GgufWriter writer;
    writer.String("general.architecture", "llama");
    writer.Tensor("blk.3.ffn_new.weight", DType::kF32, std::vector<int64_t>{256, 4},
                  Floats(1024, 1));
    ASSERT_TRUE(WriteFile(dir / "more.gguf", writer.File()).ok());
    const model_files::Gguf more = model_files::Gguf::Open(dir / "more.gguf").value();
    QuantizeOptions options = OptionsOf("IQ2_XXS");
    options.importance = &importance;
    const auto plan = PlanQuantize(more, options);
    ASSERT_FALSE(plan.ok());
    EXPECT_NE(plan.error().message.find("blk.3.ffn_new.weight"), std::string::npos);
    options.rules = {{"ffn_new", DType::kQ3_K}};
    EXPECT_TRUE(PlanQuantize(more, options).ok());
}

TEST(Quantize, PartialBlocksFallBack) {
    const struct {
        DType wanted, of_32;
    } expected[] = {{DType::kQ4_K, DType::kQ5_0},     {DType::kQ5_K, DType::kQ5_1},
                    {DType::kQ6_K, DType::kQ8_0},     {DType::kQ2_K, DType::kQ4_0},
                    {DType::kQ3_K, DType::kQ4_0},     {DType::kTQ1_0, DType::kQ4_0},
                    {DType::kIQ4_XS, DType::kIQ4_NL}, {DType::kIQ4_NL, DType::kIQ4_NL},
                    {DType::kIQ3_S, DType::kIQ4_NL},  {DType::kIQ1_M, DType::kIQ4_NL}};
    for (const auto& row : expected) {
        EXPECT_EQ(Fallback(row.wanted, 256), row.wanted);
        EXPECT_EQ(Fallback(row.wanted, 96), row.of_32);
        EXPECT_EQ(Fallback(row.wanted, 20), DType::kF16);
    }
    EXPECT_EQ(Fallback(DType::kF32, 20), DType::kF32);
    const test::TempDir dir;
    const model_files::Gguf model = model_files::Gguf::Open(WriteModel(dir)).value();
    const auto plan = PlanQuantize(model, OptionsOf("q4_k"));
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(TypeIn(*plan, "odd.weight"), DType::kQ5_0);
    EXPECT_EQ(TypeIn(*plan, "odder.weight"), DType::kF16);
    EXPECT_EQ(plan->fallen_back, 2u);
}

TEST(Quantize, RulesAndOptionsTakePrecedence) {
    const test::TempDir dir;
    const model_files::Gguf model = model_files::Gguf::Open(WriteModel(dir, true)).value();
    QuantizeOptions options = OptionsOf("Q4_K_M");
    EXPECT_EQ(TypeIn(PlanQuantize(model, options).value(), "token_embd.weight"), DType::kQ6_K)
        << "it is the output, too";
    options.embedding = DType::kQ8_0;
    options.rules = {{"blk\\.[01]\\.ffn_down", DType::kQ5_0}, {"ffn_down", DType::kQ8_0}};
    auto plan = PlanQuantize(model, options);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_EQ(TypeIn(*plan, "token_embd.weight"), DType::kQ8_0);
    EXPECT_EQ(CountOf(*plan, "ffn_down", DType::kQ5_0), 2);
    EXPECT_EQ(CountOf(*plan, "ffn_down", DType::kQ8_0), kLayers - 2);
    options.rules = {{"no such tensor", DType::kQ8_0}};
    plan = PlanQuantize(model, options);
    ASSERT_FALSE(plan.ok());
    EXPECT_NE(plan.error().message.find("no such tensor"), std::string::npos);
    options.rules = {{"odder", DType::kQ8_0}};
    EXPECT_FALSE(PlanQuantize(model, options).ok()) << "rows of 20";
    options.rules = {{"(", DType::kQ8_0}};
    EXPECT_EQ(PlanQuantize(model, options).error().code, ErrorCode::kUsage);
    options = OptionsOf("Q4_K_M");
    options.pure = true;
    plan = PlanQuantize(model, options);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(TypeIn(*plan, "token_embd.weight"), DType::kQ4_K);
    EXPECT_EQ(CountOf(*plan, "attn_v", DType::kQ4_K), kLayers);
}

TEST(Quantize, UnknownTypesAreRefusedByName) {
    for (const char* name : {"IQ1_XS", "IQ5_K", "Q9_K", "", "I32"}) {
        const auto found = FindFileType(name);
        ASSERT_FALSE(found.ok()) << name;
        EXPECT_EQ(found.error().code, ErrorCode::kUsage);
        EXPECT_FALSE(FindTensorType(name).ok()) << name;
    }
    EXPECT_NE(FindFileType("IQ5_K").error().message.find("IQ5_K"), std::string::npos);
    EXPECT_EQ(FindFileType("iq2_xxs").value().base, DType::kIQ2_XXS);
}

// Threads, strips and experts make no difference: each tensor equals the output of Encode.
TEST(Quantize, FileHoldsTheResultOfEncode) {
    const test::TempDir dir;
    const model_files::Gguf model = model_files::Gguf::Open(WriteModel(dir)).value();
    for (const char* type : {"Q4_K_M", "Q2_K", "Q8_0", "MXFP4", "BF16", "TQ1_0", "IQ3_S"}) {
        SCOPED_TRACE(type);
        const QuantizePlan plan = PlanQuantize(model, OptionsOf(type)).value();
        QuantizeRun run;
        run.threads = 3;
        run.replace = true;
        const auto bytes = WriteQuantized(model, plan, dir / "out.gguf", run);
        ASSERT_TRUE(bytes.ok()) << bytes.error().message;
        EXPECT_EQ(*bytes, std::filesystem::file_size(dir / "out.gguf"));
        EXPECT_FALSE(std::filesystem::exists(dir / "out.gguf.part"));
        const auto out = model_files::Gguf::Open(dir / "out.gguf");
        ASSERT_TRUE(out.ok()) << out.error().message;
        EXPECT_EQ(out->meta().U64("general.file_type").value(), plan.type.number);
        EXPECT_EQ(out->meta().U64("general.quantization_version").value(), 2u);
        EXPECT_EQ(out->meta().String("tokenizer.ggml.model").value(), "none");
        ASSERT_EQ(out->tensors().size(), model.tensors().size());
        for (size_t i = 0; i < plan.tensors.size(); ++i) {
            const model_files::TensorInfo& from = model.tensors()[i];
            const model_files::TensorInfo& to = out->tensors()[i];
            EXPECT_EQ(from.name, to.name);
            EXPECT_EQ(from.dims, to.dims);
            EXPECT_EQ(to.dtype, plan.tensors[i].to);
            const std::vector<float> values = model.ReadFloats(from).value();
            std::vector<std::byte> expected(to.bytes), found(to.bytes);
            Encode({to.dtype, to.cols, values, {}, expected}, CpuLevel::kReference);
            ASSERT_TRUE(out->ReadRows(to, 0, to.rows, 0, to.cols, found, nullptr).ok());
            EXPECT_EQ(expected, found) << from.name;
        }
    }
}

TEST(Quantize, RequantizingNeedsAnOption) {
    const test::TempDir dir;
    const model_files::Gguf model = model_files::Gguf::Open(WriteModel(dir)).value();
    QuantizeRun run;
    const auto plan = PlanQuantize(model, OptionsOf("Q8_0")).value();
    ASSERT_TRUE(WriteQuantized(model, plan, dir / "q8.gguf", run).ok());
    const model_files::Gguf q8 = model_files::Gguf::Open(dir / "q8.gguf").value();
    QuantizeOptions options = OptionsOf("Q4_0");
    const auto refused = PlanQuantize(q8, options);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kDenied);
    EXPECT_NE(refused.error().message.find("token_embd.weight"), std::string::npos);
    options.allow_requantize = true;
    EXPECT_TRUE(PlanQuantize(q8, options).ok());
    EXPECT_TRUE(PlanQuantize(q8, OptionsOf("Q8_0")).ok()) << "nothing is rounded again";
}

TEST(Quantize, BadWeightsNameTheirTensorAndLeaveNoFile) {
    for (const float bad : {NAN, INFINITY, 1e30f}) {
        const test::TempDir dir;
        model_files::GgufWriter writer;
        writer.String("general.architecture", "llama");
        std::vector<float> values(256 * 64, 0.5f);
        values[10'000] = bad;
        const auto bytes = std::as_bytes(std::span(values));
        const int64_t dims[] = {256, 64};
        writer.Tensor("blk.7.ffn_up.weight", DType::kF32, dims, {bytes.begin(), bytes.end()});
        ASSERT_TRUE(WriteFile(dir / "in.gguf", writer.File()).ok());
        const model_files::Gguf model = model_files::Gguf::Open(dir / "in.gguf").value();
        const auto plan = PlanQuantize(model, OptionsOf("Q4_K_M")).value();
        QuantizeRun run;
        run.threads = 2;
        const auto done = WriteQuantized(model, plan, dir / "out.gguf", run);
        ASSERT_FALSE(done.ok());
        EXPECT_EQ(done.error().code, ErrorCode::kCorrupt);
        EXPECT_NE(done.error().message.find("blk.7.ffn_up.weight"), std::string::npos);
        EXPECT_FALSE(std::filesystem::exists(dir / "out.gguf"));
        EXPECT_FALSE(std::filesystem::exists(dir / "out.gguf.part"));
    }
}

TEST(Quantize, StopsOnRequest) {
    const test::TempDir dir;
    const model_files::Gguf model = model_files::Gguf::Open(WriteModel(dir)).value();
    const std::atomic<bool> stop{true};
    QuantizeRun run;
    run.stop = &stop;
    const auto done =
        WriteQuantized(model, PlanQuantize(model, OptionsOf("Q4_0")).value(), dir / "o.gguf", run);
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, ErrorCode::kCancelled);
    EXPECT_FALSE(std::filesystem::exists(dir / "o.gguf.part"));
}

// ---- Importance ---------------------------------------------------------------------------------

std::string WriteImportance(const test::TempDir& dir, size_t cols, float bad = 1) {
    model_files::GgufWriter writer;
    writer.String("general.type", "imatrix");
    const auto add = [&](const std::string& name, std::vector<int64_t> dims,
                         std::vector<float> values) {
        const auto bytes = std::as_bytes(std::span(values));
        writer.Tensor(name, DType::kF32, dims, {bytes.begin(), bytes.end()});
    };
    std::vector<float> sums(cols, 1.0f);
    sums[0] = 100 * bad;
    add("blk.0.attn_q.weight.in_sum2", {static_cast<int64_t>(cols), 1}, sums);
    add("blk.0.attn_q.weight.counts", {1, 1}, {50});
    std::vector<float> experts(4 * cols, 2.0f);
    add("blk.0.ffn_up_exps.weight.in_sum2", {static_cast<int64_t>(cols), 4}, experts);
    add("blk.0.ffn_up_exps.weight.counts", {1, 4}, {10, 0, 5, 5});
    const std::string path = dir / "im.gguf";
    EXPECT_TRUE(WriteFile(path, writer.File()).ok());
    return path;
}

TEST(Importance, WeighsColumns) {
    const test::TempDir dir;
    const model_files::Gguf model = model_files::Gguf::Open(WriteModel(dir)).value();
    const auto importance = Importance::Read(WriteImportance(dir, 256));
    ASSERT_TRUE(importance.ok()) << importance.error().message;
    EXPECT_EQ(importance->size(), 2u);
    QuantizeOptions options = OptionsOf("Q3_K_S");
    options.importance = &*importance;
    const auto plan = PlanQuantize(model, options).value();
    EXPECT_GT(plan.without_importance, 0u);
    QuantizeRun run;
    run.importance_name = "im.gguf";
    ASSERT_TRUE(WriteQuantized(model, plan, dir / "with.gguf", run).ok());
    options.importance = nullptr;
    ASSERT_TRUE(
        WriteQuantized(model, PlanQuantize(model, options).value(), dir / "bare.gguf", run).ok());
    // The important column has a smaller error than otherwise.
    const auto error = [&](const std::string& path) {
        const model_files::Gguf out = model_files::Gguf::Open(path).value();
        const char* name = "blk.0.attn_q.weight";
        const auto a = model.ReadFloats(*model.FindTensor(name)).value();
        const auto b = out.ReadFloats(*out.FindTensor(name)).value();
        double sum = 0;
        for (size_t i = 0; i < a.size(); i += 256) sum += std::pow(a[i] - b[i], 2);
        return sum;
    };
    EXPECT_LT(error(dir / "with.gguf"), 0.5 * error(dir / "bare.gguf"));
}

TEST(Importance, MatrixOfAnotherModelOrBrokenIsRefused) {
    const test::TempDir dir;
    const model_files::Gguf model = model_files::Gguf::Open(WriteModel(dir)).value();
    QuantizeOptions options = OptionsOf("Q4_K_M");
    const auto other = Importance::Read(WriteImportance(dir, 512)).value();
    options.importance = &other;
    const auto plan = PlanQuantize(model, options);
    ASSERT_FALSE(plan.ok());
    EXPECT_NE(plan.error().message.find("blk.0.attn_q.weight"), std::string::npos);
    EXPECT_FALSE(Importance::Read(WriteImportance(dir, 256, -1)).ok());
    EXPECT_FALSE(Importance::Read(WriteImportance(dir, 256, NAN)).ok());
    EXPECT_FALSE(Importance::Read(WriteModel(dir)).ok()) << "a model";
    EXPECT_FALSE(Importance::Read(dir / "nowhere").ok());
}

// A stack of stacks has as many matrices as both dims together.
TEST(Importance, CountsAllMatricesOfATensor) {
    const test::TempDir dir;
    model_files::GgufWriter writer;
    writer.String("general.architecture", "llama");
    const std::vector<int64_t> dims = {256, 1, 2, 3};
    writer.Tensor("blk.0.ffn_up.weight", DType::kF32, dims,
                  std::vector<std::byte>(256 * 6 * sizeof(float)));
    ASSERT_TRUE(WriteFile(dir / "four.gguf", writer.File()).ok());
    const auto model = model_files::Gguf::Open(dir / "four.gguf").value();
    for (const int64_t matrices : {2, 6}) {
        model_files::GgufWriter sums;
        sums.String("general.type", "imatrix");
        const auto add = [&](const std::string& name, int64_t cols) {
            const std::vector<float> ones(static_cast<size_t>(cols * matrices), 1.0f);
            const auto bytes = std::as_bytes(std::span(ones));
            const std::vector<int64_t> shape = {cols, matrices};
            sums.Tensor(name, DType::kF32, shape, {bytes.begin(), bytes.end()});
        };
        add("blk.0.ffn_up.weight.in_sum2", 256);
        add("blk.0.ffn_up.weight.counts", 1);
        ASSERT_TRUE(WriteFile(dir / "im.gguf", sums.File()).ok());
        const auto importance = Importance::Read(dir / "im.gguf");
        ASSERT_TRUE(importance.ok()) << importance.error().message;
        QuantizeOptions options = OptionsOf("Q4_K");
        options.pure = true;
        options.importance = &*importance;
        const auto plan = PlanQuantize(model, options);
        ASSERT_EQ(plan.ok(), matrices == 6);
        if (!plan.ok()) continue;
        EXPECT_TRUE(WriteQuantized(model, *plan, dir / "out.gguf", {}).ok());
    }
}

std::string OldFormat(int32_t entries, int32_t name_bytes, int32_t values, size_t floats) {
    std::string text;
    const auto put = [&](int32_t value) {
        text.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    put(entries);
    put(name_bytes);
    text += "blk.0.attn_q.weight";
    put(7);
    put(values);
    for (size_t i = 0; i < floats; ++i) put(0x3f800000);
    return text;
}

TEST(Importance, ReadsTheOldFormatAndRefusesBrokenOnes) {
    const test::TempDir dir;
    const auto read = [&](const std::string& text) {
        EXPECT_TRUE(WriteFile(dir / "im.dat", std::as_bytes(std::span(text))).ok());
        return Importance::Read(dir / "im.dat");
    };
    const std::string good = OldFormat(1, 19, 256, 256);
    const auto importance = read(good);
    ASSERT_TRUE(importance.ok()) << importance.error().message;
    ASSERT_NE(importance->Find("blk.0.attn_q.weight"), nullptr);
    EXPECT_EQ(importance->Find("blk.0.attn_q.weight")->size(), 256u);
    for (size_t cut = 0; cut < good.size(); cut += 13) EXPECT_FALSE(read(good.substr(0, cut)).ok());
    EXPECT_FALSE(read(OldFormat(0, 19, 256, 256)).ok());
    EXPECT_FALSE(read(OldFormat(-5, 19, 256, 256)).ok());
    EXPECT_FALSE(read(OldFormat(1, -1, 256, 256)).ok());
    EXPECT_FALSE(read(OldFormat(1, 2'000'000'000, 256, 256)).ok());
    EXPECT_FALSE(read(OldFormat(1, 19, 2'000'000'000, 256)).ok());
    EXPECT_FALSE(read(OldFormat(1, 19, -1, 256)).ok());
    EXPECT_FALSE(read(OldFormat(2, 19, 256, 256)).ok());
}

}  // namespace
}  // namespace weft::quantize
