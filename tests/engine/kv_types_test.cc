// Names of the KV cache's types, and models that a type does not fit.
#include <gtest/gtest.h>

#include "engine/job.h"
#include "engine/rank/rank_options.h"

namespace weft::engine {
namespace {

TEST(KvTypes, AreOneNameOrTwo) {
    EXPECT_EQ(ParseKvTypes("--kv-dtype", "q4_0").value(), KvTypes(DType::kQ4_0));
    EXPECT_EQ(ParseKvTypes("--kv-dtype", "Q8_0,q5_1").value(), KvTypes(DType::kQ8_0, DType::kQ5_1));
    for (const char* name : {"", "q4_1", "q4_k", "q8_0,", ",q8_0", "f16,f16,f16", "f16, q8_0"}) {
        const auto types = ParseKvTypes("--kv-dtype", name);
        ASSERT_FALSE(types.ok()) << name;
        EXPECT_EQ(types.error().code, ErrorCode::kUsage);
        EXPECT_NE(types.error().message.find("f16, bf16, f32, q8_0, q5_1 or q4_0"),
                  std::string::npos)
            << types.error().message;
    }
    EXPECT_EQ(KvTypes(DType::kQ8_0).Name(), "Q8_0");
    for (const KvTypes types : {KvTypes(DType::kF16), KvTypes(DType::kQ8_0, DType::kQ4_0)}) {
        EXPECT_EQ(ParseKvTypes("--kv-dtype", types.Name()).value(), types);
    }
}

std::string Refusal(const model::Hyper& hyper, const KvTypes& types) {
    const Status checked = CheckKvTypes(hyper, types, "m.gguf");
    return checked.ok() ? "" : checked.error().message;
}

TEST(KvTypes, FitTheModel) {
    model::Hyper hyper;
    hyper.head_dim = 80;
    EXPECT_EQ(Refusal(hyper, {DType::kF16, DType::kBF16}), "");
    for (const DType type : {DType::kQ8_0, DType::kQ5_1, DType::kQ4_0}) {
        const std::string expected = "m.gguf: a " + std::string(Info(type).name) +
                                     " KV cache needs heads of a multiple of 32 dims; this model "
                                     "has 80. Use --kv-dtype f16.";
        EXPECT_EQ(Refusal(hyper, type), expected);
        EXPECT_EQ(Refusal(hyper, {DType::kF16, type}), expected);
        EXPECT_EQ(Refusal(hyper, {type, DType::kF16}), expected);
    }
    hyper.v_head_dim = 64;  // values of other columns
    EXPECT_EQ(Refusal(hyper, {DType::kF16, DType::kQ4_0}), "");
    hyper.windowed_heads.head_dim = 48;
    EXPECT_NE(Refusal(hyper, {DType::kF16, DType::kQ4_0}).find("has 48"), std::string::npos);
}

TEST(KvTypes, AreOneForLatents) {
    model::Hyper hyper;
    hyper.head_dim = 192;
    hyper.latent.rank = 512;
    hyper.latent.rope = 64;
    EXPECT_EQ(Refusal(hyper, DType::kQ4_0), "");
    EXPECT_NE(Refusal(hyper, {DType::kQ8_0, DType::kQ4_0}).find("one cache for keys and values"),
              std::string::npos);
    hyper.latent.rope = 48;
    EXPECT_NE(Refusal(hyper, DType::kQ4_0).find("has 560"), std::string::npos);
}

}  // namespace
}  // namespace weft::engine
