// The start-up self-test: a healthy cluster passes in every layout. A wrong weight on one rank is
// found, with the first op that it affects and the rank that holds it.
#include "engine/start/self_test.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "engine/rank/rank.h"
#include "model_files/content.h"
#include "net/local.h"
#include "support/fake_cluster.h"
#include "support/lavapipe.h"
#include "support/nightly.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/tiny_model.h"

namespace weft::engine {
namespace {

class Proof : public testing::Test {
  protected:
    void SetUp() override {
        ::setenv("XDG_CACHE_HOME", (dir_ / "cache").c_str(), 1);
        support::WriteTinyGguf(dir_ / "good.gguf",
                               {.hyper = support::OddHyper(), .dtype = DType::kQ8_0});
        KeepSums("good.gguf");  // several ranks use a record if they know the whole file
    }
    void TearDown() override { ::unsetenv("XDG_CACHE_HOME"); }

    // Makes a copy that differs in row `row` of a tensor, but has the model's recorded checksums.
    void Spoil(const std::string& tensor, int64_t row) {
        Damage(tensor, row);
        KeepSumsOfSoundCopy();
    }
    void Damage(const std::string& tensor, int64_t row) {
        const auto source = model_files::OpenModel(dir_ / "good.gguf");
        ASSERT_TRUE(source.ok());
        const model_files::TensorInfo* info = (*source)->FindTensor(tensor);
        ASSERT_NE(info, nullptr);
        std::filesystem::copy_file(dir_ / "good.gguf", dir_ / "bad.gguf",
                                   std::filesystem::copy_options::overwrite_existing);
        std::fstream file(dir_ / "bad.gguf", std::ios::in | std::ios::out | std::ios::binary);
        if (info->rows == 1) {  // change one element of a vector
            const float other = 3;
            file.seekp(static_cast<std::streamoff>(info->offset + 4 * static_cast<uint64_t>(row)));
            file.write(reinterpret_cast<const char*>(&other), sizeof other);
            return;
        }
        const auto row_bytes = static_cast<uint64_t>(RowBytes(info->dtype, info->cols));
        for (uint64_t block = 0; block < row_bytes; block += 34) {
            const uint64_t at = info->offset + static_cast<uint64_t>(row) * row_bytes + block;
            file.seekp(static_cast<std::streamoff>(at + 2));  // after the block's scale
            file.write(std::string(32, '\x55').data(), 32);
        }
    }

    // A disk that damages a file does not change its times. So the checksums recorded for the
    // damaged copy are those of the sound one, and the ranks find no difference in them.
    void KeepSumsOfSoundCopy() {
        std::filesystem::remove_all(dir_ / "cache/weft/content");
        const auto good = KeepSums("good.gguf"), bad = KeepSums("bad.gguf");
        std::ifstream sound(good), damaged(bad);
        nlohmann::json entry = nlohmann::json::parse(damaged);
        entry["sums"] = nlohmann::json::parse(sound)["sums"];
        std::ofstream(bad, std::ios::trunc) << entry.dump();
    }
    // Reads a file until its checksums are recorded; returns the file with them. (They are recorded
    // as soon as any later write would change the file's time.)
    std::filesystem::path KeepSums(const std::string& name) {
        const auto all = [&] {
            std::set<std::filesystem::path> paths;
            std::error_code none;
            for (const auto& entry :
                 std::filesystem::directory_iterator(dir_ / "cache/weft/content", none)) {
                paths.insert(entry.path());
            }
            return paths;
        };
        const auto before = all();
        while (true) {
            const auto source = model_files::OpenModel(dir_ / name);
            EXPECT_TRUE(source.ok() && model_files::ReadIdentity(**source).ok());
            for (const auto& path : all()) {
                if (!before.contains(path)) return path;
            }
        }
    }

    Job JobFor(const std::string& file, int tp, int pp, const std::string& device) const {
        Job job;
        job.device = device;
        job.model = dir_ / file;
        job.tp = tp;
        job.pp = pp;
        job.threads = 1;
        job.ctx = 64;
        job.chunk = 16;
        return job;
    }

    // Opens all ranks and returns their statuses. Rank `bad` (not 0, whose record is of its own
    // file) reads the damaged file. devices: by rank; empty: CPUs.
    std::vector<Status> Open(int tp, int pp, int bad,
                             const std::vector<std::string>& devices = {}) {
        const int size = tp * pp;
        test::FakeHub hub(size);
        std::vector<net::Fabric> fabrics(1);
        if (size > 1) fabrics = *net::MakeLocalFabrics(size, net::Transport::kShm, 4 << 20);
        std::vector<Status> results(static_cast<size_t>(size));
        std::vector<std::thread> threads;
        for (int rank = 0; rank < size; ++rank) {
            threads.emplace_back([&, rank] {
                const auto index = static_cast<size_t>(rank);
                test::FakeCluster cluster(hub, rank, size, std::move(fabrics[index]));
                const Job job = JobFor(rank == bad ? "bad.gguf" : "good.gguf", tp, pp,
                                       devices.empty() ? "cpu" : devices[index]);
                auto made = Rank::Make(job, cluster);
                Status status = made.ok() ? (*made)->Enter() : Status(made.error());
                if (!status.ok()) status = cluster.ReportFailure(status.error());
                results[index] = status;
            });
        }
        for (std::thread& thread : threads) thread.join();
        return results;
    }
    void ExpectGood(int tp, int pp, const std::vector<std::string>& devices = {}) {
        for (const Status& status : Open(tp, pp, -1, devices)) {
            EXPECT_TRUE(status.ok()) << status.error().message;
        }
    }
    // Every rank refuses with the same message, which contains all of `parts`.
    static void ExpectRefusal(const std::vector<Status>& results,
                              const std::vector<std::string>& parts) {
        for (const Status& status : results) {
            ASSERT_FALSE(status.ok()) << "none of: " << parts.back();
            EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
            EXPECT_EQ(status.error().message, results[0].error().message);
        }
        for (const std::string& part : parts) {
            EXPECT_NE(results[0].error().message.find(part), std::string::npos)
                << part << " in:\n"
                << results[0].error().message;
        }
    }

    test::TempDir dir_;
};

TEST_F(Proof, ASoundClusterPassesInEveryLayout) {
    ExpectGood(2, 1);  // no record yet
    ExpectGood(1, 1);  // writes the record
    EXPECT_FALSE(std::filesystem::is_empty(dir_ / "cache/weft/proof"));
    for (const auto& [tp, pp] : {std::pair{2, 1}, {3, 1}, {1, 2}, {2, 2}, {1, 1}}) {
        SCOPED_TRACE(std::to_string(tp) + " x " + std::to_string(pp));
        ExpectGood(tp, pp);
    }
}

// Data that both ranks hold differ between them: found without a record.
TEST_F(Proof, AReplicaThatDiffersIsNamed) {
    Spoil("blk.1.ffn_norm.weight", 7);
    ExpectRefusal(Open(2, 1, 1),
                  {"the tensor ranks do not hold the same bits", "(rms_norm l1.ffn_norm)",
                   "rank 0 (host a) has ", "rank 1 (host b) has ", "--skip-self-test"});
}

// Data that only one rank holds are wrong: all ranks agree on a wrong sum, and the record shows it.
TEST_F(Proof, APartThatDiffersIsNamedByTheRecord) {
    ExpectGood(1, 1);
    Spoil("blk.1.attn_q.weight", 200);  // rank 1 holds heads 5 to 8
    ExpectRefusal(Open(2, 1, 1),
                  {"one rank alone (cpu-", "computes other logits",
                   ", rounding explains up to 0.005; ", "(l1.attn_q), on rank 1 (host b)"});
    ExpectRefusal(Open(3, 1, 2), {"(l1.attn_q), on rank 2 (host c)"});
    // A pipeline also detects damage.
    Spoil("blk.2.ffn_up.weight", 5);
    ExpectRefusal(Open(1, 2, 1), {"(l2.ffn_up), on rank 1 (host b)"});
    // A wrong row that another rank holds does no harm.
    Spoil("blk.1.attn_q.weight", 5);
    for (const Status& status : Open(2, 1, 1)) EXPECT_TRUE(status.ok());
}

// A CPU rounds activations to 8 bits and the other device does not: the difference is no damage.
TEST_F(Proof, StagesOnUnlikeDevicesRoundDifferently) {
    SKIP_TO_NIGHT_UNLESS(false);  // vulkan.jobs runs one daily
    const auto found = test::FindLavapipe();
    if (!found.ok()) GTEST_SKIP() << found.error().message;
    const std::string gpu = fmt::format("vulkan:{}", *found);
    const std::vector<std::vector<std::string>> orders = {
        {"cpu", gpu}, {gpu, "cpu"}, {"cpu", gpu, "cpu"}};
    // (The device runs alone first, because it compiles its kernels while no other rank waits.)
    for (const std::string& alone : {gpu, std::string("cpu")}) {
        std::filesystem::remove_all(dir_ / "cache/weft/proof");
        ExpectGood(1, 1, {alone});
        for (const auto& devices : orders) {
            SCOPED_TRACE(
                fmt::format("the record of {}, ranks on {}", alone, fmt::join(devices, ", ")));
            ExpectGood(1, static_cast<int>(devices.size()), devices);
        }
        // Damages a weight of the last stage.
        Spoil("blk.2.ffn_up.weight", 5);
        for (const auto& devices : {orders[0], orders[1]}) {
            SCOPED_TRACE(fmt::format("the record of {}, ranks on {}, damage", alone,
                                     fmt::join(devices, ", ")));
            ExpectRefusal(
                Open(1, 2, 1, devices),
                {"one rank alone (" + (alone == gpu ? std::string("vulkan-") : "cpu-"),
                 "the rounding of unlike devices explains up to 0.03", "on rank 1 (host b)"});
        }
    }
}

TEST_F(Proof, ABrokenRecordIsNone) {
    ExpectGood(1, 1);
    for (const auto& entry : std::filesystem::directory_iterator(dir_ / "cache/weft/proof")) {
        std::ofstream(entry.path(), std::ios::trunc) << "weft proof 1\n garbage";
    }
    ExpectGood(2, 1);
    EXPECT_TRUE(std::filesystem::is_empty(dir_ / "cache/weft/proof"));
}

TEST(SelfTestRecord, RoundTripAndRejectsOtherBytes) {
    SelfTestRecord record;
    record.ops.push_back({"l0.attn_q", 4, false, 0, 2, {1, -2, 3}});
    record.ops.push_back({"logits", 9, true, 0, 0, {}});
    record.logits = {0.5f, 1.5f};
    const std::string text = EncodeRecord(record);
    std::string hex;
    for (const char byte : text) hex += fmt::format("{:02x}", static_cast<uint8_t>(byte));
    EXPECT_EQ(hex.substr(0, hex.size() - 16),  // without the checksum
              "776566742070726f6f6620310a02000000090000006c302e6174746e5f7104000000020000000000"
              "0000030000000000803f000000c000004040060000006c6f67697473090000000000000000000000"
              "00000000020000000000003f0000c03f");
    const auto back = DecodeRecord(text);
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(EncodeRecord(*back), text);
    EXPECT_EQ(back->ops[0].blocks, record.ops[0].blocks);
    for (size_t i = 0; i < text.size(); ++i) {
        EXPECT_FALSE(DecodeRecord(text.substr(0, i)).ok());
        std::string other = text;
        other[i] = static_cast<char>(other[i] ^ 0x40);
        EXPECT_FALSE(DecodeRecord(other).ok());
    }
}

TEST(Distance, NanCountsAsAnInfiniteDistance) {
    const float nan = std::nanf("");
    EXPECT_EQ(Distance(std::vector<float>{1, 2}, std::vector<float>{1, 2}), 0);
    EXPECT_NEAR(Distance(std::vector<float>{1, 0}, std::vector<float>{1, 1}), std::sqrt(0.5), 1e-9);
    EXPECT_TRUE(std::isinf(Distance(std::vector<float>{1, nan}, std::vector<float>{1, 1})));
    EXPECT_TRUE(std::isinf(Distance(std::vector<float>{1}, std::vector<float>{1, 1})));
}

// A shared expert's addend is not compared as a rank's result, also on a device that sums in
// float32.
TEST(SelfTestPlaces, PartsOfSumsAreNotCompared) {
    const model::Hyper hyper = support::TinyExpertHyper("qwen2moe");
    const support::TinySource source(hyper);
    for (const bool wide : {false, true}) {
        model::BuildOptions options;
        options.target.float64_reductions = wide;
        model::Layout layout;
        layout.tp = 2;
        const auto program = support::Build(hyper, source, layout, options)[0];
        int shared = 0, compared = 0;
        const auto places = PlacesOf(program);
        for (size_t i = 0; i < places.size(); ++i) {
            if (program.ops[i].outputs.empty()) continue;
            const std::string& name = program.value(program.ops[i].outputs[0]).name;
            const bool part = name.ends_with("ffn_down_shexp") || name.ends_with("ffn_down_exps");
            EXPECT_FALSE(part && places[i].has_value()) << name;
            shared += part ? 1 : 0;
            compared += places[i].has_value() ? 1 : 0;
        }
        EXPECT_GT(shared, 0);
        EXPECT_GT(compared, 10);
    }
}

// Other ranks name parts of the key.
TEST_F(Proof, RecordsStayInTheirFolder) {
    const std::string path = RecordPath("a/../../../b-f16");
    EXPECT_EQ(path, dir_ / "cache/weft/proof/a_.._.._.._b-f16");
}

}  // namespace
}  // namespace weft::engine
