// --allreduce-dtype: the wire type of tensor ranks' all-reduces. With any type all ranks hold the
// same bits (--verify), and logits stay near those of one rank; f64 changes nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>

#include "support/nightly.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::support {
namespace {

constexpr const char* kWireTokens =
    "1,77,200,33,250,9,104,61,180,5,5,222,90,14,131,47,66,201,7,112";

// From docs/numbers.md: relative distance of logits, by the rounding after the sums: none, the
// float16 cache, or activations.
struct WireBound {
    const char* wire;
    double nothing, cache, activations;
};
constexpr WireBound kWireBounds[] = {{"f64", 1e-4, 1e-4, 5e-3},
                                     {"f32", 1e-4, 4e-3, 6e-2},
                                     {"bf16", 0.1, 0.1, 0.1},
                                     {"q8", 0.4, 0.4, 0.4}};

class Wires : public testing::Test {
  protected:
    std::string Model(DType dtype) {
        const std::string path = dir_ / (std::string(Info(dtype).name) + ".gguf");
        WriteTinyGguf(path, {.hyper = OddHyper("llama"), .dtype = dtype});
        return path;
    }
    Matrix Logits(const std::string& model, const Words& flags) {
        const std::string npy = dir_ / "logits.npy";
        std::filesystem::remove(npy);
        const Ran ran = RunWeft(Words{"logits", model, "--tokens", kWireTokens, "--all", "--npy",
                                      npy, "-t", "1", "--verify"} +
                                flags);
        EXPECT_EQ(ran.status, 0) << ran.err;
        return ran.status == 0 ? ReadNpy(npy) : Matrix();
    }
    // The largest distance of a row.
    static double Distance(const Matrix& many, const Matrix& one) {
        double most = many.rows == one.rows ? 0 : INFINITY;
        for (size_t row = 0; row < std::min(many.rows, one.rows); ++row) {
            const double distance = RelativeL2(many.Row(row), one.Row(row));
            most = distance <= most ? most : distance;  // NaN stays
        }
        return most;
    }
    Ran Run(const std::string& model, const Words& flags) {
        return RunWeft(Words{"run", model, "-p", "hello", "-n", "8", "--ignore-eos", "-t", "1"} +
                       flags);
    }

    test::TempDir dir_;
};

TEST_F(Wires, LogitsStayNearThoseOfOneRankInEachWire) {
    size_t turn = 0;
    for (const DType dtype : {DType::kF32, DType::kQ8_0}) {
        turn += turn / 4;  // with the other transport
        const std::string model = Model(dtype);
        const Matrix one = Logits(model, {"--kv-dtype", "f32"});
        ASSERT_EQ(one.rows, 20u);
        for (const char* transport : {"shm", "tcp"}) {
            for (const char* tp : {"2", "3"}) {
                if (!test::InTurn(turn++, 2)) continue;
                const Words layout{"--kv-dtype", "f32", "--tp", tp, "--transport", transport};
                const Matrix unsaid = Logits(model, layout);
                for (const WireBound& bound : kWireBounds) {
                    SCOPED_TRACE(std::string(Info(dtype).name) + " " + bound.wire + " tp " + tp);
                    const Matrix many =
                        Logits(model, layout + Words{"--allreduce-dtype", bound.wire});
                    const double most = dtype == DType::kF32 ? bound.nothing : bound.activations;
                    EXPECT_TRUE(Distance(many, one) <= most) << Distance(many, one);
                    const bool exact = std::string(bound.wire) == "f64";
                    EXPECT_EQ(many.data == unsaid.data, exact);  // auto, on one host
                }
            }
        }
    }
}

// Splits at segment boundaries.
TEST_F(Wires, WithFloat64TheBitsAreThoseOfOneRank) {
    const std::string model = Model(DType::kQ8_0);
    const Matrix one = Logits(model, {});
    for (const char* transport : {"shm", "tcp"}) {
        for (const char* tp : {"2", "3"}) {
            const Words layout{"--tp", tp, "--transport", transport, "--allreduce-dtype", "f64"};
            EXPECT_EQ(Logits(model, layout).data, one.data) << transport << " " << tp;
        }
    }
}

TEST_F(Wires, StagesAndHalvesTakeThemAsWell) {
    SKIP_TO_NIGHT_UNLESS(false);
    const std::string model = Model(DType::kF32);
    const Matrix one = Logits(model, {});
    for (const WireBound& bound : kWireBounds) {
        const Words wire{"--allreduce-dtype", bound.wire};
        const Matrix stages = Logits(model, wire + Words{"--tp", "2", "--pp", "2"});
        EXPECT_TRUE(Distance(stages, one) <= bound.cache) << bound.wire;
        const Matrix halves = Logits(model, wire + Words{"--tp", "2", "--overlap", "on"});
        EXPECT_TRUE(Distance(halves, one) <= bound.cache) << bound.wire;
    }
    const Words f32{"--tp", "3", "--allreduce-dtype", "f32", "--overlap"};
    EXPECT_EQ(Logits(model, f32 + Words{"on"}).data, Logits(model, f32 + Words{"off"}).data);
}

// The bits of a narrow prompt do not depend on its chunks, and short prompts are not narrow.
TEST_F(Wires, PromptsHaveTheirOwnWire) {
    const std::string model = Model(DType::kF32);
    std::string tokens = "1";
    for (int i = 1; i < 140; ++i) tokens += "," + std::to_string(i * 37 % 250 + 3);
    const auto last = [&](const std::string& prompt, const Words& flags) {
        const std::string npy = dir_ / "last.npy";
        const Ran ran = RunWeft(Words{"logits", model, "--tokens", prompt, "--npy", npy, "-t", "1",
                                      "--kv-dtype", "f32", "--verify"} +
                                flags);
        EXPECT_EQ(ran.status, 0) << ran.err;
        return ReadNpy(npy);
    };
    const Words bf16{"--prompt-allreduce-dtype", "bf16"};
    const Matrix one = last(tokens, {});
    for (const char* tp : {"2", "3"}) {
        const Words layout{"--tp", tp, "--transport", "tcp"};
        const Matrix exact = last(tokens, layout);
        const Matrix narrow = last(tokens, layout + bf16);
        EXPECT_NE(narrow.data, exact.data);
        EXPECT_TRUE(Distance(narrow, one) <= 0.1) << Distance(narrow, one);
        EXPECT_EQ(last(tokens, layout + bf16 + Words{"--prefill-chunk", "33"}).data, narrow.data);
        EXPECT_EQ(last(tokens, layout + bf16 + Words{"--overlap", "on"}).data, narrow.data);
        EXPECT_EQ(last(kWireTokens, layout + bf16).data, last(kWireTokens, layout).data);
    }
}

TEST_F(Wires, UsedWireTypeIsReported) {
    const std::string model = Model(DType::kQ8_0);
    for (const WireBound& bound : kWireBounds) {
        const Words layout{"--tp", "2", "--allreduce-dtype", bound.wire};
        EXPECT_EQ(Run(model, layout + Words{"--json"}).Json()["all_reduce"]["wire"], bound.wire);
        const std::string line = Run(model, layout).err;
        const std::string said = std::string(bound.wire) == "f64"
                                     ? "a token over shm, p50"
                                     : std::string("a token over shm as ") + bound.wire + ", p50";
        EXPECT_NE(line.find(said), std::string::npos) << line;
    }
    EXPECT_EQ(Run(model, {"--tp", "2", "--json"}).Json()["all_reduce"]["wire"], "f64");
    const Words apart{"--tp", "2", "--prompt-allreduce-dtype", "q8"};
    const auto sums = Run(model, apart + Words{"--json"}).Json()["all_reduce"];
    EXPECT_EQ(sums["wire"], "f64");
    EXPECT_EQ(sums["prompt_wire"], "q8");
    const std::string prompts = Run(model, apart).err;
    EXPECT_NE(prompts.find("a token over shm (prompts: q8), p50"), std::string::npos) << prompts;
    EXPECT_FALSE(
        Run(model, {"--allreduce-dtype", "q8", "--json"}).Json()["all_reduce"].contains("wire"));
    const auto rows = RunWeft({"bench", model, "-p", "0", "-n", "4", "-r", "1", "-t", "1", "--tp",
                               "1,2", "--allreduce-dtype", "bf16", "-o", "json"})
                          .Json();
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0]["wire"], "none");
    EXPECT_EQ(rows[1]["wire"], "bf16");
    const Words logits{"logits", model, "--tokens", "1,2", "--json", "--allreduce-dtype", "f32"};
    EXPECT_EQ(RunWeft(logits + Words{"--tp", "2"}).Json()["wire"], "f32");
    EXPECT_FALSE(RunWeft(logits).Json().contains("wire"));
}

// The self-test compares with one rank's record.
TEST_F(Wires, TheProofAllowsWhatTheWireCosts) {
    for (const DType dtype : {DType::kF32, DType::kQ8_0}) {
        const std::string model = Model(dtype);
        const Words cache{"XDG_CACHE_HOME=" + (dir_ / "cache")};
        const Words run{"run", model, "-p", "hello", "-n", "2", "-t", "1"};
        ASSERT_EQ(RunWeft(run, cache).status, 0);
        for (const WireBound& bound : kWireBounds) {
            const Ran ran =
                RunWeft(run + Words{"--tp", "3", "--allreduce-dtype", bound.wire}, cache);
            EXPECT_EQ(ran.status, 0) << bound.wire << ran.err;
        }
    }
}

TEST_F(Wires, ServePrintsItsWireType) {
    const std::string model = Model(DType::kQ8_0);
    Weft server({"serve", model, "--port", "0", "-t", "1", "--tp", "2", "--allreduce-dtype", "f32",
                 "--json", "--ctx", "64", "--max-seqs", "2"});
    test::Prints(server, "}");
    ::kill(server.pid(), SIGTERM);
    const Ran ran = server.Wait();
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_NE(ran.out.find("\"wire\":\"f32\""), std::string::npos) << ran.out;
}

TEST_F(Wires, OtherNamesAreUsageErrors) {
    const std::string model = Model(DType::kF32);
    for (const Words& command :
         {Words{"run", model, "-p", "a"}, Words{"serve", model}, Words{"bench", model},
          Words{"logits", model, "--tokens", "1"}, Words{"perplexity", model, model}}) {
        for (const char* name : {"f16", "full", "F32", ""}) {
            const Ran ran = RunWeft(command + Words{"--allreduce-dtype", name});
            EXPECT_EQ(ran.status, 2) << command[0] << " " << name << ": " << ran.err;
            EXPECT_NE(ran.err.find("bf16"), std::string::npos) << ran.err;
        }
    }
}

}  // namespace
}  // namespace weft::support
